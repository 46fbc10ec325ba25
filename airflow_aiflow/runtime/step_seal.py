"""What the seal of a recorded step is made over: the place it stands in and what it says."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

from airflow_aiflow.durable.record import Kept, StepRecord, Stored
from airflow_aiflow.durable.seal import Seals, verify
from airflow_aiflow.runtime.payloads import result_hash
from airflow_aiflow.runtime.replay import Slot
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
        "recorded_at": sealed_at(ended_at),
    }


@lru_cache(maxsize=64)
def _seals(key: bytes | None, execution: str, generation: int) -> Seals:
    return Seals(key, execution, generation)


def seals(session: Session) -> Seals:
    """
    Give what seals the steps of an attempt.

    :param session: the attempt at work.
    """
    taken = session.taken
    return _seals(session.services.settings.seal_key, str(taken.lease.execution_pk), taken.generation)


def sealed_at(ended_at: datetime) -> int:
    """
    Give a step's moment as it is sealed.

    :param ended_at: the worker's.
    :return: microseconds since 1970.
    """
    return int(ended_at.timestamp() * 1_000_000)


def sealed_us(ended_us: int) -> int:
    """
    Give a step's moment as ``sealed_at`` does.

    :param ended_us: microseconds since 1970.
    :return: the same, at times one less: seals were made by way of a float.
    """
    return int(ended_us / 1_000_000 * 1_000_000)


def new_seal(session: Session, step_key: bytes, fingerprint: bytes, stored: Stored, ended_at: datetime) -> bytes:
    """
    Seal a step of the attempt at work.

    :param session: the attempt.
    :return: the seal of ``sealed_parts``.
    """
    return seals(session).of(step_key, fingerprint, result_hash(stored), sealed_at(ended_at))


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


def refuse_seal(session: Session, slot: Slot, name: str, kept: Kept) -> None:
    """
    Say what is wrong with a record whose seal is not that of its content.

    :param session: the attempt at work.
    :param slot: the place in which the record was found.
    :param name: of the step, for the message.
    :raises SealError: naming the step.
    """
    parts = sealed_parts(session, slot.key, slot.fingerprint, Stored(kept.inline, kept.sha256), kept.ended_at)
    verify(kept.seal, step=name, **parts)
