"""What the seal of a recorded step is made over: the place it stands in and what it says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_aiflow.durable.record import StepRecord, Stored
from airflow_aiflow.durable.seal import verify
from airflow_aiflow.runtime.payloads import result_hash
from airflow_aiflow.runtime.session import Session


def sealed_parts(
    session: Session,
    step_key: bytes,
    fingerprint: bytes,
    stored: Stored,
    ended_at: datetime,
    *,
    place: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """
    Give the arguments of ``seal`` and ``verify``.

    :param session: the attempt at work.
    :param place: execution and generation in which the record stands; ``None``: those of the attempt.
    """
    taken = session.taken
    execution_pk, generation = place or (taken.lease.execution_pk, taken.generation)
    return {
        "key": session.services.settings.seal_key,
        "execution": str(execution_pk),
        "generation": generation,
        "step_key": step_key,
        "request_fingerprint": fingerprint,
        "result_hash": result_hash(stored),
        "recorded_at": int(ended_at.timestamp() * 1_000_000),
    }


def check_seal(session: Session, record: StepRecord, *, place: tuple[int, int] | None = None) -> None:
    """
    Verify a record's seal.

    :param session: the attempt at work.
    :param record: what was read.
    :param place: execution and generation in which it stands; ``None``: those of the attempt.
    :raises SealError: naming the step.
    """
    parts = sealed_parts(session, record.step_key, record.fingerprint, record.result, record.ended_at, place=place)
    verify(record.seal, step=record.name, **parts)
