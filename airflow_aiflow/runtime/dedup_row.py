"""The row by which a target knows that an effect was done: what is in it, its seal, and today's call judged on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.identity import EffectId, ExecutionId, digest
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.seal import seal, verify
from airflow_aiflow.exceptions import EffectConflictError
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.payloads import result_hash
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session


def dedup_identity(effect: EffectId) -> bytes:
    """
    Give the dedup table's key.

    :param effect: the effect.
    :return: 32 bytes.
    """
    return digest("dedup", effect.namespace, effect.name, effect.key)


@dataclass(frozen=True, slots=True)
class DedupRow:
    """Hold a row of the dedup table."""

    store_id: UUID
    act: UUID
    request: Stored
    request_fp: bytes
    result: Stored
    seal: bytes | None
    execution: ExecutionId
    generation: int
    done_at: datetime

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> DedupRow:
        """
        Read what the statement ``dedup_found`` gave.

        :param row: of an effect that is there.
        """
        store_id, _version, act, request, request_fp, result, sha256, sealed, dag, run, task, index, generation, at = (
            row
        )
        return cls(
            store_id=store_id,
            act=act,
            request=Stored(inline=request),
            request_fp=request_fp,
            result=Stored(inline=result, sha256=sha256),
            seal=sealed,
            execution=ExecutionId(dag, run, task, index),
            generation=generation,
            done_at=at,
        )


def seal_row(key: bytes | None, identity: bytes, act: UUID, request_fp: bytes, result: Stored) -> bytes:
    """
    Seal a row's result.

    :param key: the deployment's seal key.
    :param identity: the row's key.
    :param act: the try that did it.
    :param request_fp: fingerprint of its request.
    :param result: what is recorded.
    """
    return seal(**_parts(key, identity, act, request_fp, result))


def check_row(session: Session, effect: EffectId, row: DedupRow) -> None:
    """
    Verify a row's seal.

    :raises SealError: naming the effect.
    """
    if row.seal is not None:
        key, identity = session.services.settings.seal_key, dedup_identity(effect)
        parts = _parts(key, identity, row.act, row.request_fp, row.result)
        verify(row.seal, step=effect.name, **parts)


def _parts(key: bytes | None, identity: bytes, act: UUID, request_fp: bytes, result: Stored) -> dict[str, Any]:
    return {
        "key": key,
        "execution": str(act),
        "generation": 0,
        "step_key": identity,
        "request_fingerprint": request_fp,
        "result_hash": result_hash(result),
    }


def judge_row(session: Session, effect: EffectId, row: DedupRow, request: Request, options: EffectOptions) -> str:
    """
    Compare a done effect with today's call.

    :param row: of the effect.
    :param request: today's.
    :return: a remark for the log; empty where nothing differs.
    :raises EffectConflictError: where it was done with another request; nothing was changed.
    """
    if row.request_fp == request.fingerprint():
        return ""
    recorded = RecordedRequest.read(session.payloads.raw(row.request, effect.name))
    if recorded.same(request, options.identity):
        return ""
    difference = recorded.difference(request, session.services.host.redact)
    earlier = row.execution == session.attempt.execution and row.generation < session.taken.generation
    if options.on_conflict == "keep" or (options.on_conflict == "auto" and earlier):
        data = {"name": effect.name, "key": effect.key, "difference": difference}
        session.recorder.note("effect_kept", data)
        return f" (the request differs: {difference}; the recorded result is kept)"
    raise EffectConflictError(
        f"effect '{effect.name}' key {shown_key(effect)} was done {row.done_at:%Y-%m-%d %H:%M} by {row.execution} with "
        f"another request: {difference}. Nothing was changed. "
        f'(1) on_conflict="keep", or identity=(...) with the argument names that count  (2) another key'
    )
