"""
A step: look it up, else run it, store its result, commit, and only then give the author the stored form.

The value of the first run is the decoded stored form, so try 1 equals try 2. A result that somebody else recorded first
wins: the loser goes on with the stored value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import tenacity

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.record import StepRecord, Stored, Usage
from airflow_aiflow.durable.seal import seal, verify
from airflow_aiflow.exceptions import PayloadEncodeError, StepTimeoutError
from airflow_aiflow.runtime.current import current_unit, inside_unit
from airflow_aiflow.runtime.payloads import result_hash
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session

#: Longest pause between two tries of a step inside one attempt: longer waits belong to Airflow's retry, which gives the
#: slot back.
LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Ran:
    """Hold what a live run gave."""

    value: Any
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class StepCall:
    """
    Describe one call of a step.

    :param kind: ``step``, ``llm`` or ``item``.
    :param run: the work; runs only on a miss.
    :param as_type: the class that rebuilds the stored value.
    :param timeout: seconds for one try.
    :param retries: tries after the first, inside this attempt.
    :param unit_key: what the unit inside is called; ``None``: the step's own key.
    """

    kind: str
    name: str
    fingerprint: bytes
    run: Callable[[], Ran]
    as_type: Any = None
    timeout: float | None = None
    retries: int = 0
    unit_key: str | None = None


def refuse_coroutine(method: str, name: str, fn: Callable[..., Any]) -> None:
    """
    Refuse an ``async def`` function in a sync flow, which would record a coroutine object.

    :raises TypeError: with the way out.
    """
    if inspect.iscoroutinefunction(fn):
        raise TypeError(
            f"flow.{method}({name!r}, ...): {getattr(fn, '__name__', fn)!s} is a coroutine function; make the task "
            f"'async def' and await flow.{method}(...)"
        )


def run_step(session: Session, call: StepCall) -> Any:
    """
    Replay a step, or run and record it.

    :param session: the attempt at work.
    :param call: the step.
    :return: the decoded stored value.
    """
    done, value = prepare(session, call)
    return value if done else run_live(session, call, value)


def prepare(session: Session, call: StepCall) -> tuple[bool, Any]:
    """
    Take a step's place and replay it where it is recorded.

    :param session: the attempt at work.
    :param call: the step.
    :return: (True, its value), or (False, the slot to run it in).
    """
    session.gate.check()
    unit = current_unit()
    unit.calls += 1
    slot = session.replay.take(unit.path, call.name, call.fingerprint)
    found = session.replay.steps.get(slot.key)
    if found is not None:
        return True, replayed(session, call, found)
    return False, slot


def replayed(session: Session, call: StepCall, record: StepRecord) -> Any:
    """
    Give a recorded result.

    :param record: the row; its seal is verified.
    """
    check_seal(session, record)
    value = session.payloads.load(record.result, record.name, call.as_type)
    session.journal.replay(record)
    return value


def run_live(session: Session, call: StepCall, slot: Slot) -> Any:
    """
    Run a step that is not recorded, and record it.

    :param slot: its place; given back if it fails.
    """
    clock = session.services.clock
    try:
        with session.gate.hand(call.name):
            began = clock.monotonic()
            with inside_unit(call.name, call.unit_key or slot.key.hex()) as unit:
                ran = _run(session, call)
            if call.kind == "item" and unit.calls:
                # Its own flow calls are recorded; the item itself is run through again on a resume.
                session.replay.give_back(slot)
                return ran.value
            failpoint("after_act", call.name)
            return _record(session, call, slot, ran, (clock.monotonic() - began) * 1000)
    except BaseException as error:
        session.replay.give_back(slot)
        if isinstance(error, Exception):
            error.add_note(f"aiflow: in step '{call.name}', {session.where}")
        raise


def _run(session: Session, call: StepCall) -> Ran:
    timeout = call.timeout if call.timeout is not None else session.step_timeout

    def once() -> Ran:
        return session.deadlines.run(
            call.run, timeout, lambda: StepTimeoutError(f"step '{call.name}' did not end within {timeout:g} s")
        )

    if not call.retries:
        return once()
    clock = session.services.clock

    def sleep(seconds: float) -> None:
        clock.wait(seconds)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Exception),
        wait=tenacity.wait_random_exponential(multiplier=1, max=LONGEST_PAUSE),
        stop=tenacity.stop_after_attempt(call.retries + 1),
        sleep=sleep,
        reraise=True,
    )
    return retrying(once)


def _record(session: Session, call: StepCall, slot: Slot, ran: Ran, duration_ms: float) -> Any:
    secret = session.payloads.secret_in(ran.value)
    if secret:
        session.services.host.log(
            f"the result of '{call.name}' holds a secret at {secret}: it is not recorded and will run again",
            warning=True,
        )
        return ran.value
    try:
        stored = session.payloads.save(ran.value, call.name, call.as_type)
    except PayloadEncodeError as error:
        session.keep_unstorable(call.name, ran.value, error)
        raise
    ended_at = session.services.clock.now()
    record = StepRecord(
        step_key=slot.key,
        kind=call.kind,
        name=call.name,
        unit="/".join(slot.unit),
        fingerprint=slot.fingerprint,
        occurrence=slot.occurrence,
        fence=session.taken.lease.fence,
        result=stored,
        seal=seal(**_sealed_parts(session, slot.key, slot.fingerprint, stored, ended_at)),
        ended_at=ended_at,
        duration_ms=duration_ms,
        usage=ran.usage,
    )
    failpoint("before_record", call.name)
    prior = session.recorder.step(record, {"name": call.name, "kind": call.kind, "ms": round(duration_ms, 1)})
    failpoint("after_record", call.name)
    if prior is not None:
        check_seal(session, prior)
    session.journal.step(record)
    return session.payloads.load((prior or record).result, call.name, call.as_type)


def check_seal(session: Session, record: StepRecord) -> None:
    """
    Verify a record's seal.

    :raises SealError: naming the step.
    """
    verify(
        record.seal,
        step=record.name,
        **_sealed_parts(session, record.step_key, record.fingerprint, record.result, record.ended_at),
    )


def _sealed_parts(
    session: Session, step_key: bytes, fingerprint: bytes, result: Stored, ended_at: datetime
) -> dict[str, Any]:
    return {
        "key": session.services.settings.seal_key,
        "execution": str(session.taken.lease.execution_pk),
        "generation": session.taken.generation,
        "step_key": step_key,
        "request_fingerprint": fingerprint,
        "result_hash": result_hash(result),
        "recorded_at": int(ended_at.timestamp() * 1_000_000),
    }
