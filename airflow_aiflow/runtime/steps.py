"""
A step: look it up, else run it, store its result, commit, and only then give the author the stored form.

The value of the first run is the decoded stored form, so try 1 equals try 2. A result that somebody else recorded first
wins: the loser goes on with the stored value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, NoneType
from typing import Any

import tenacity

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.policy import check_name, is_count
from airflow_aiflow.durable.record import Instead, StepRecord, Usage
from airflow_aiflow.exceptions import (
    BudgetExceededError,
    FlowClosedError,
    FlowOptionError,
    FlowSignal,
    PayloadEncodeError,
    StepTimeoutError,
)
from airflow_aiflow.runtime.coroutines import driven, drives
from airflow_aiflow.runtime.current import Unit, current_unit, flow_call, inside_unit
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.reuse import key_for, reuse_one
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.sharing import shared, shares
from airflow_aiflow.runtime.step_seal import check_seal, new_seal

#: Longest pause between two tries of a step inside one attempt: longer waits belong to Airflow's retry, which gives the
#: slot back.
LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Ran:
    """
    Hold what a live run gave.

    :param instead: what stands in the place of events once it is recorded.
    """

    value: Any
    usage: Usage | None = None
    instead: Instead | None = None


@dataclass(frozen=True, slots=True)
class StepCall:
    """
    Describe one call of a step.

    :param kind: ``step``, ``llm`` or ``item``.
    :param run: the work; runs only on a miss.
    :param as_type: the class that rebuilds the stored value.
    :param printed: names and short prints of what the fingerprint is made of; ``None``: nobody is told what changed.
    :param timeout: seconds for one try.
    :param retries: tries after the first, inside this attempt.
    :param unit_key: what the unit inside is called; ``None``: the step's own key.
    """

    kind: str
    name: str
    fingerprint: bytes
    run: Callable[[], Ran]
    as_type: Any = None
    printed: Printed | None = None
    timeout: float | None = None
    retries: int = 0
    unit_key: str | None = None
    #: Seconds; a record of another run of the DAG that is no older counts; ``None``: none does.
    reuse: float | None = None
    #: Errors after which a further try is in vain.
    hopeless: tuple[type[BaseException], ...] = ()


#: Classes of most results, of which none is a promise: three questions less, a million times.
_NO_PROMISES = frozenset({str, int, float, bool, NoneType, list, dict, tuple, bytes})

#: Marks functions whose call does not run their body.
_RUNS_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

#: Given session, call, place, what it gave, and how many milliseconds it took.
Keep = Callable[[Session, StepCall, Slot, Ran, float], Any]


def refuse_unfit(method: str, name: str, fn: Callable[..., Any]) -> None:
    """
    Refuse a function whose call would not run its body: ``async def`` in a sync flow, and generators.

    :raises FlowOptionError: if the name is none that the ledger can hold.
    :raises TypeError: with the way out.
    """
    check_name(method, name)
    if type(fn) is FunctionType and not fn.__dict__ and not fn.__code__.co_flags & _RUNS_LATER:
        return  # the common case, without the three questions below
    if not callable(fn):
        raise TypeError(f"flow.{method}({name!r}, ...): {fn!r} is not callable. Nothing ran")
    shown = getattr(fn, "__name__", fn)
    if inspect.iscoroutinefunction(fn) and not drives():
        raise TypeError(
            f"flow.{method}({name!r}, ...): {shown!s} is a coroutine function; make the task "
            f"'async def' and await flow.{method}(...)"
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"flow.{method}({name!r}, ...): {shown!s} is a generator function, whose body would not run; "
            f"return a list instead. Nothing ran"
        )


def refuse_unrun(value: Any) -> Any:
    """
    Run a coroutine where there is a loop for it, and refuse a result that is a promise which nobody will keep.

    :param value: what the author's function gave.
    :return: the value.
    :raises TypeError: with the way out.
    """
    if type(value) in _NO_PROMISES:
        return value
    value = driven(value)
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        close = getattr(value, "close", None)
        if close is not None:
            close()
        raise TypeError(f"the function gave a {type(value).__name__}, which nobody runs; give the value itself")
    return value


def call_author(fn: Callable[..., Any], *args: Any) -> Ran:
    """
    Run the author's function of a step.

    :param fn: the function.
    :param args: its arguments.
    """
    return Ran(refuse_unrun(author(fn, *args)))


def check_retries(method: str, retries: object) -> None:
    """
    Check a step's ``retries=``.

    :param method: for the message.
    :raises FlowOptionError: if it is no whole number from 0.
    """
    if not is_count(retries):
        raise FlowOptionError(f"flow.{method}(): retries must be a whole number from 0, got {retries!r}")


def run_step(session: Session, call: StepCall, slot: Slot | None = None) -> Any:
    """
    Replay a step, or run and record it.

    :param session: the attempt at work.
    :param call: the step.
    :param slot: its place, where it has been taken already.
    :return: the decoded stored value.
    """
    with flow_call(session):
        done, value = prepare(session, call, slot)
        return value if done else run_live(session, call, value)


def prepare(session: Session, call: StepCall, slot: Slot | None = None) -> tuple[bool, Any]:
    """
    Take a step's place and replay it where it is recorded.

    :param session: the attempt at work.
    :param call: the step.
    :param slot: its place, where it has been taken already.
    :return: (True, its value), or (False, the slot to run it in).
    """
    unit = current_unit()
    if slot is None:
        slot = session.replay.take(unit.path, call.name, call.fingerprint)
    found = session.replay.find(slot.key)
    try:
        if found is not None:
            value = replayed(session, call, found)
        elif shares(session) and (found := shared(session, slot)) is not None:
            value = read_back(session, call, found, theirs=True)
        elif (given := reuse_one(session, call, slot)) is not None:
            found, value = given
    except BaseException:
        session.replay.give_back(slot)
        raise
    if unit.path:
        unit.slots[slot.key] = slot
    return (True, value) if found is not None else (False, slot)


def replayed(session: Session, call: StepCall, record: StepRecord) -> Any:
    """
    Give a recorded result.

    :param record: the row; its seal is verified.
    """
    check_seal(session, record)
    return read_back(session, call, record)


def read_back(session: Session, call: StepCall, record: StepRecord, *, theirs: bool = False) -> Any:
    """
    Decode a recorded result whose seal was verified, and say so.

    :param record: the row.
    :param theirs: whether another map index recorded it.
    """
    began = session.meter.now()
    value = session.payloads.load(record.result, record.name, call.as_type)
    session.journal.replay(record, theirs=theirs, since=began)
    return value


def give_back(session: Session, slot: Slot) -> None:
    """
    Give a place back whose call failed, or never began.

    :param slot: what ``prepare`` gave.
    """
    current_unit().slots.pop(slot.key, None)
    session.replay.give_back(slot)


def run_live(session: Session, call: StepCall, slot: Slot, keep: Keep | None = None) -> Any:
    """
    Run a step that is not recorded, and record it.

    :param slot: its place; given back if it fails.
    :param keep: records what it gave, and says what is given for it; ``None``: at once, the stored form.
    """
    clock, outer = session.services.clock, current_unit()
    timeout = call.timeout if call.timeout is not None else session.step_timeout
    unit = None
    try:
        with session.gate.hand(call.name, timeout):
            began = clock.monotonic()
            with inside_unit(call.name, call.unit_key or slot.key.hex()) as unit:
                ran = _run(session, call, unit, timeout)
            if unit.cut:
                # The author's code swallowed the signal; what it made of it is no result.
                raise session.gate.signal or FlowClosedError("this flow has ended in the middle of the call")
            if call.kind == "item" and unit.calls:
                # Its own flow calls are recorded; the item itself is run through again on a resume.
                give_back(session, slot)
                _hand_on(session, unit, outer)
                return ran.value
            failpoint("after_act", call.name)
            value = (keep or _record)(session, call, slot, ran, (clock.monotonic() - began) * 1000)
            session.replay.forget(unit.slots)
            return value
    except BaseException as error:
        give_back(session, slot)
        if unit is not None:
            _give_back_inside(session, unit)
        if isinstance(error, FlowSignal):
            outer.cut = True
        if isinstance(error, Exception):
            error.add_note(f"aiflow: in step '{call.name}', {session.where}")
        raise


def _hand_on(session: Session, unit: Unit, outer: Unit) -> None:
    """Let the unit around an unrecorded item keep the item's places, for it may fail yet; the root never does."""
    if outer.path:
        outer.slots.update(unit.slots)
    else:
        session.replay.forget(unit.slots)


def _give_back_inside(session: Session, unit: Unit) -> None:
    """Let the next run of a unit find what this one recorded."""
    slots, unit.slots = unit.slots, {}
    session.replay.give_back(*slots.values())


def _run(session: Session, call: StepCall, unit: Unit, timeout: float | None) -> Ran:
    def once() -> Ran:
        session.gate.check()  # a further try is a start
        try:
            return session.deadlines.run(
                call.run, timeout, lambda: StepTimeoutError(f"step '{call.name}' did not end within {timeout:g} s")
            )
        except BaseException:
            _give_back_inside(session, unit)
            raise

    if not call.retries:
        return once()

    def may_help(error: BaseException) -> bool:
        # A budget stays used up.
        return isinstance(error, Exception) and not isinstance(error, BudgetExceededError)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda error: may_help(error) and not unit.cut and not isinstance(error, call.hopeless)
        ),
        wait=tenacity.wait_random_exponential(multiplier=1, max=LONGEST_PAUSE),
        stop=tenacity.stop_after_attempt(call.retries + 1),
        sleep=session.pause,
        reraise=True,
    )
    return retrying(once)


def make_record(session: Session, call: StepCall, slot: Slot, ran: Ran, duration_ms: float) -> StepRecord | None:
    """
    Make the record of what a step gave; a large result is in the artifact store before this returns.

    :return: ``None``: it holds a secret that would be stored in clear, so it is not recorded.
    :raises PayloadEncodeError: if it can't be stored.
    """
    secret = session.payloads.secret_in_clear(ran.value)
    if secret:
        session.services.host.log(
            f"the result of '{call.name}' holds a secret at {secret}: it is not recorded and will run again",
            warning=True,
        )
        session.wasted(call.name, ran.usage, "not recorded")
        return None
    return record_of(session, call, slot, ran, duration_ms)


def record_of(session: Session, call: StepCall, slot: Slot, ran: Ran, duration_ms: float) -> StepRecord:
    """
    Make the record of a value that is our own, in which no secret can be: as ``make_record``, which looks for one.

    :raises PayloadEncodeError: if it can't be stored.
    """
    try:
        stored = session.payloads.save(ran.value, call.name, call.as_type)
    except PayloadEncodeError as error:
        session.keep_unstorable(call.name, ran.value, error)
        session.wasted(call.name, ran.usage, "can't be stored")
        raise
    ended_at = session.services.clock.now()
    return StepRecord(
        step_key=slot.key,
        kind=call.kind,
        name=call.name,
        unit="/".join(slot.unit),
        fingerprint=slot.fingerprint,
        occurrence=slot.occurrence,
        fence=session.taken.lease.fence,
        result=stored,
        seal=new_seal(session, slot.key, slot.fingerprint, stored, ended_at),
        ended_at=ended_at,
        duration_ms=duration_ms,
        usage=ran.usage,
        prints=None if call.printed is None else call.printed.prints,
        reuse_key=key_for(session, slot) if call.kind == "llm" or call.reuse is not None else None,
        arguments=session.arguments(call.printed, call.name, duration_ms),
    )


def _record(session: Session, call: StepCall, slot: Slot, ran: Ran, duration_ms: float) -> Any:
    record = make_record(session, call, slot, ran, duration_ms)
    if record is None:
        return ran.value
    failpoint("before_record", call.name)
    event = {"name": call.name, "kind": call.kind, "ms": round(duration_ms, 1)}
    prior = session.recorder.step(record, event, instead=ran.instead)
    failpoint("after_record", call.name)
    if prior is not None:
        check_seal(session, prior)
    session.journal.step(record, call.printed)
    if slot.unit:
        session.replay.keep(prior or record)
    return session.payloads.load((prior or record).result, call.name, call.as_type)
