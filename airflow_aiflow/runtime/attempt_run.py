"""
One attempt from take-over to end.

Read only after the take-over has committed; spooled outcomes are taken in before that read. However the body ends, the
lease is given back and the state is written by the holder of the fence alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from airflow_aiflow.durable.artifact import bind_store
from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import (
    AttemptParked,
    AttemptSuperseded,
    EffectInDoubtError,
    LedgerError,
    PayloadEncodeError,
)
from airflow_aiflow.runtime.alarm import AlarmClock
from airflow_aiflow.runtime.current import inside_flow
from airflow_aiflow.runtime.deadline import Deadlines
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.gate import Gate
from airflow_aiflow.runtime.heartbeat import Heartbeat
from airflow_aiflow.runtime.journal import Journal
from airflow_aiflow.runtime.payloads import Payloads
from airflow_aiflow.runtime.recorder import Recorder, with_patience
from airflow_aiflow.runtime.replay import Replay, Spent
from airflow_aiflow.runtime.session import Services, Session
from airflow_aiflow.runtime.spool import Spool
from airflow_aiflow.runtime.takeover import take_over

R = TypeVar("R")


def run_attempt(
    attempt: Attempt,
    services: Services,
    body: Callable[[Flow], R],
    *,
    lease: LeaseRules | None = None,
    step_timeout: float | None = None,
) -> R:
    """
    Run a task's body under a flow.

    :param attempt: which attempt this is.
    :param services: what it works with.
    :param body: the author's code.
    :param lease: the task's own lease rules; ``None``: the deployment's.
    :param step_timeout: seconds for steps that name none.
    :return: what the body gave.
    :raises AttemptSuperseded: if a later attempt is at work; nothing of this one counts but recorded outcomes.
    :raises AttemptParked: if the slot is to be given back.
    """
    with _attempt(attempt, services, lease, step_timeout) as run:
        with bind_store(services.store), inside_flow(run.flow):
            value = body(run.flow)
        run.succeeded(value)
        return value


@contextmanager
def open_flow(
    attempt: Attempt, services: Services, *, lease: LeaseRules | None = None, step_timeout: float | None = None
) -> Iterator[Flow]:
    """
    Open a flow inside code that is not wrapped; the same as ``run_attempt``, without a result.

    :param attempt: which attempt this is.
    :param services: what it works with.
    """
    with _attempt(attempt, services, lease, step_timeout) as run:
        with bind_store(services.store), inside_flow(run.flow):
            yield run.flow
        run.succeeded(None)


@contextmanager
def _attempt(
    attempt: Attempt, services: Services, lease: LeaseRules | None, step_timeout: float | None
) -> Iterator[_Run]:
    run = _Run(attempt, services, lease or services.settings.lease, step_timeout)
    try:
        yield run
    except AttemptSuperseded:
        run.released("was superseded")
        raise
    except AttemptParked as parked:
        services.host.log(f"aiflow: parked: {parked.why}; comes back in {parked.delay:.0f} s")
        run.ended(ExecutionState.PAUSED)
        raise
    except EffectInDoubtError:
        run.ended(ExecutionState.FAILED)
        raise
    except BaseException as error:
        state = services.host.ending(error)
        if state is None:
            run.released("was interrupted")
        else:
            run.ended(state)
        raise
    finally:
        run.close()


class _Run:
    def __init__(self, attempt: Attempt, services: Services, lease: LeaseRules, step_timeout: float | None) -> None:
        self._services = services
        settings, clock = services.settings, services.clock
        services.ledger.check()
        taken = take_over(attempt, services.ledger, settings, clock, ttl=lease.ttl)
        spool = Spool(settings.spool_dir, settings.seal_key) if settings.spool_dir is not None else None
        if spool is not None:
            spool.take_in(services.ledger, services.host)
        recorded = services.ledger.recorded(taken.lease, taken.generation)
        gate = Gate(clock)
        self._alarms = AlarmClock()
        deadlines = Deadlines(self._alarms, on_overrun=lambda why: services.host.end_process(why, superseded=False))
        deadlines.install()
        journal = Journal(services.host, len(recorded.steps))
        self._session = Session(
            services=services,
            attempt=attempt,
            taken=taken,
            replay=Replay(recorded),
            recorder=Recorder(
                services.ledger,
                taken.lease,
                taken.generation,
                clock=clock,
                spool=spool,
                patience=settings.ledger_patience,
            ),
            payloads=Payloads(services.store, settings.inline_limit, services.host),
            journal=journal,
            gate=gate,
            deadlines=deadlines,
            heartbeat=Heartbeat(
                services.ledger, taken.lease, lease, gate, services.host, clock, patience=settings.handover
            ),
            spool=spool,
            step_timeout=step_timeout,
        )
        before = Spent()
        for record in recorded.steps:
            before.add(record.usage)
        journal.opened(taken, before)
        self._session.recorder.note(
            "attempt", {"number": taken.number, "sign": taken.sign.value, "recorded": len(recorded.steps)}
        )
        self.flow = Flow(self._session, before)
        self._session.heartbeat.start()

    def succeeded(self, value: Any) -> None:
        """Record the end; a superseded attempt's return value is refused."""
        session = self._session
        with session.gate.hand("return"):
            failpoint("before_finish")
            session.recorder.flush()
            result = self._result(value)
            ours = with_patience(
                lambda: session.services.ledger.finish(session.taken.lease, ExecutionState.SUCCEEDED, result=result),
                session.services.clock,
                session.services.settings.ledger_patience,
            )
            failpoint("after_finish")
        if not ours:
            raise AttemptSuperseded("a later attempt of this task took over; this one's return value is refused")
        session.journal.closed()

    def _result(self, value: Any) -> Stored | None:
        if self._session.payloads.secret_in(value):
            return None
        try:
            return self._session.payloads.save(value, "return", value.__class__)
        except PayloadEncodeError:
            return None  # Airflow may be able to hand it on; we only keep what we can read back

    def ended(self, state: ExecutionState) -> None:
        """Record another end than success; what the body raised must not be hidden by a lost ledger."""
        try:
            self._session.recorder.flush()
            self._services.ledger.finish(self._session.taken.lease, state, result=None)
        except LedgerError as error:
            self._services.host.log(f"the end of this attempt could not be recorded: {error}", warning=True)

    def released(self, how: str) -> None:
        """Give the lease back without a state."""
        try:
            self._services.ledger.let_go(self._session.taken.lease)
        except LedgerError as error:
            self._services.host.log(f"this attempt {how}; its lease lapses by itself: {error}", warning=True)

    def close(self) -> None:
        """Stop what runs beside the body."""
        self._session.gate.end("has ended")
        self._session.heartbeat.stop()
        self._alarms.close()
