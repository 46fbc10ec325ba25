"""
One attempt from take-over to end.

Read only after the take-over has committed; spooled outcomes are taken in before that read. However the body ends, the
lease is given back and the state is written by the holder of the fence alone. An attempt that was superseded or parked
ends as that, also where the author's code swallowed the signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_aiflow.durable.artifact import bind_store
from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.execution import ExecutionState, Taken
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import (
    AttemptAsks,
    AttemptCancelled,
    AttemptParked,
    AttemptSuperseded,
    EffectInDoubtError,
    FlowSignal,
)
from airflow_aiflow.runtime.alarm import AlarmClock
from airflow_aiflow.runtime.changed_keys import tell_unreached
from airflow_aiflow.runtime.compensation import undo_all
from airflow_aiflow.runtime.current import current_unit, inside_flow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.interrupts import Interrupts, author
from airflow_aiflow.runtime.journal import Journal
from airflow_aiflow.runtime.meter import Meter
from airflow_aiflow.runtime.one_at_a_time import OneAtATime
from airflow_aiflow.runtime.patience import Patience
from airflow_aiflow.runtime.payloads import Payloads
from airflow_aiflow.runtime.recorder import Recorder
from airflow_aiflow.runtime.replay import Replay, Spent, spent_before
from airflow_aiflow.runtime.session import Services, Session
from airflow_aiflow.runtime.shutdown import Shutdown
from airflow_aiflow.runtime.spool import Spool
from airflow_aiflow.runtime.takeover import take_over
from airflow_aiflow.runtime.unawaited import all_awaited
from airflow_aiflow.runtime.watch import Watch
from airflow_aiflow.storage.payload_cipher import PayloadCipher

if TYPE_CHECKING:
    from airflow_aiflow.storage.target import Targets

R = TypeVar("R")

#: Least seconds until a task comes back that was handed over in a shutdown: with less, the executor's late word on the
#: process that ends meets the next one and fails it.
HAND_OVER_SECONDS = 20.0

TOLD_TO_END = "this process is told to end"


def run_attempt(
    attempt: Attempt,
    services: Services,
    body: Callable[[Flow], R],
    *,
    lease: LeaseRules | None = None,
    step_timeout: float | None = None,
    shutdown: Shutdown | None = None,
    for_good: Callable[[BaseException], bool] | None = None,
) -> R:
    """
    Run a task's body under a flow.

    :param attempt: which attempt this is.
    :param services: what it works with.
    :param body: the author's code.
    :param lease: the task's own lease rules; ``None``: the deployment's.
    :param step_timeout: seconds for steps that name none.
    :param shutdown: tells that the process is to end; ``None``: SIGTERM does what its handler does.
    :param for_good: says whether no further try follows an error: then effects that can be are taken back, before the
        failure is recorded; so they are where a person cancels the run; ``None``: never.
    :return: what the body gave.
    :raises AttemptSuperseded: if a later attempt is at work; nothing of this one counts but recorded outcomes.
    :raises AttemptParked: if the slot is to be given back.
    :raises AttemptCancelled: if a person cancelled the run.
    """
    with _attempt(attempt, services, lease, step_timeout, shutdown) as run:
        with bind_store(services.store), inside_flow(run.flow):
            try:
                value = all_awaited(lambda: author(body, run.flow))
                run.heed()
            except BaseException as error:
                if for_good is not None:
                    run.undo_after(error, for_good)
                raise
        run.succeeded(value)
        return value


@contextmanager
def open_flow(
    attempt: Attempt,
    services: Services,
    *,
    lease: LeaseRules | None = None,
    step_timeout: float | None = None,
    shutdown: Shutdown | None = None,
) -> Iterator[Flow]:
    """
    Open a flow inside code that is not wrapped; the same as ``run_attempt``, without a result.

    :param attempt: which attempt this is.
    :param services: what it works with.
    """
    with _attempt(attempt, services, lease, step_timeout, shutdown) as run:
        with bind_store(services.store), inside_flow(run.flow):
            yield run.flow
        run.succeeded(None)


@contextmanager
def _attempt(
    attempt: Attempt,
    services: Services,
    lease: LeaseRules | None,
    step_timeout: float | None,
    shutdown: Shutdown | None,
) -> Iterator[_Run]:
    def not_told() -> None:
        if shutdown is not None and shutdown.asked:
            raise AttemptParked(HAND_OVER_SECONDS, f"{TOLD_TO_END} before anything began")

    not_told()
    run = _Run(attempt, services, lease or services.settings.lease, step_timeout, not_told)
    try:
        if shutdown is not None:
            run.listen_to(shutdown)
        yield run
    except BaseException as error:
        if run.forked:
            raise  # the child's end is not the attempt's
        signal = run.signal_behind(error)
        if signal is None:
            run.ended_by(error)
            raise
        run.left_by(signal)
        if signal is error:
            raise
        raise signal from error
    finally:
        if not run.forked:
            if shutdown is not None:
                shutdown.detach()
            run.close()


class _Run:
    """Put an attempt together and bring it to its end, on the main thread with signals held outside author's code."""

    def __init__(
        self,
        attempt: Attempt,
        services: Services,
        lease: LeaseRules,
        step_timeout: float | None,
        check: Callable[[], None],
    ) -> None:
        self._services = services
        settings, clock, ledger = services.settings, services.clock, services.ledger
        Patience(clock, settings.ledger_patience).over(ledger.check)
        taken = take_over(attempt, ledger, settings, clock, ttl=lease.ttl, check=check)
        self._lease = taken.lease
        self._targets: list[Targets] = []
        self._at_end: list[Callable[[], None]] = []
        self._meter = Meter(services.stats, clock, attempt, taken)
        self._watch = Watch(services, taken.lease, lease, back_in=max(settings.reschedule_delay, HAND_OVER_SECONDS))
        self._gate = self._watch.gate
        self._alarms = AlarmClock()
        self._interrupts = Interrupts(self._alarms)
        self._patience = Patience(clock, settings.ledger_patience, lambda: self._interrupts.held)
        try:
            self._alarms.open()
            self._interrupts.open()
            # From here on: what follows may take longer than the lease.
            self._watch.start()
            self._watch.heartbeat.told(taken.asked)
            self._session, before = self._make_session(attempt, taken, step_timeout)
            self.flow = Flow(self._session, before)
        except BaseException:
            self.released("could not start")
            self.close()
            raise

    def _make_session(self, attempt: Attempt, taken: Taken, step_timeout: float | None) -> tuple[Session, Spent]:
        services, settings = self._services, self._services.settings
        spool, cipher = None, PayloadCipher(settings.payload_keys)
        if settings.spool_dir is not None:
            spool = Spool(settings.spool_dir, settings.seal_key, attempt.execution, cipher)
            self._patience.over(partial(spool.take_in, services.ledger, services.host))
        recorded = self._patience.over(lambda: services.ledger.recorded(taken.lease, taken.generation))
        deadlines = self._watch.deadlines(self._alarms, self._interrupts)
        before = spent_before(recorded)
        journal = Journal(services.host, recorded, self._meter)
        journal.opened(taken, before)
        recorder = Recorder(
            services.ledger,
            taken.lease,
            taken.generation,
            patience=self._patience,
            spool=spool,
            cipher=cipher,
            meter=self._meter,
        )
        recorder.note("attempt", {"number": taken.number, "sign": taken.sign.value, "recorded": recorded.count})
        session = Session(
            services=services,
            attempt=attempt,
            taken=taken,
            replay=Replay(recorded, None if recorded.totals is None else recorder.find),
            recorder=recorder,
            payloads=Payloads(services.store, settings.inline_limit, services.host, cipher),
            journal=journal,
            meter=self._meter,
            gate=self._gate,
            interrupts=self._interrupts,
            deadlines=deadlines,
            heartbeat=self._watch.heartbeat,
            effects_in_hand=OneAtATime(),
            spool=spool,
            step_timeout=step_timeout,
            targets=self._targets,
            at_end=self._at_end,
        )
        return session, before

    def listen_to(self, shutdown: Shutdown) -> None:
        """
        Bring what is in hand to its record, and nothing else, once the process is told to end.

        :param shutdown: who is told.
        """
        shutdown.attach(self._wind_down)
        self._interrupts.announce(shutdown.ask)

    def _wind_down(self) -> None:
        """Take no lock and write nothing: a signal handler calls this, and may be interrupted by itself."""
        if self._gate.closed:
            return
        settings, host = self._services.settings, self._services.host
        grace = settings.shutdown_grace
        self._gate.shut(max(settings.reschedule_delay, HAND_OVER_SECONDS), TOLD_TO_END)
        line = f"aiflow: {TOLD_TO_END}: nothing new starts, what is in hand has {grace:.0f} s"
        self._alarms.set(0, lambda: host.log(line))
        self._alarms.set(grace, self._cut_off)

    def _cut_off(self) -> None:
        """Wait no longer for what is in hand. A cut effect is in doubt, a cut step is not recorded."""
        self._gate.cut()

        def cut() -> FlowSignal:
            # The author's code may swallow it: what it makes of that is no result.
            current_unit().cut = True
            return self._gate.signal or AttemptParked(HAND_OVER_SECONDS, TOLD_TO_END)

        self._session.deadlines.cut(cut)

    @property
    def forked(self) -> bool:
        """Whether this is a child that came out of the author's code by itself."""
        return self._gate.forked

    def heed(self) -> None:
        """Raise the signal by which this attempt has to end, where the author's code swallowed it."""
        signal = self._gate.signal
        if isinstance(signal, AttemptParked | AttemptCancelled):
            raise signal

    def succeeded(self, value: Any) -> None:
        """Record the end; a superseded attempt's return value is refused."""
        session = self._session
        self.heed()
        tell_unreached(session)
        with session.gate.hand("return", start=False):
            failpoint("before_finish")
            session.recorder.flush()
            result = self._result(value)
            self._watch.ending()
            ours = self._patience.over(
                lambda: session.services.ledger.finish(self._lease, ExecutionState.SUCCEEDED, result=result)
            )
            failpoint("after_finish")
        if not ours:
            raise AttemptSuperseded("a later attempt of this task took over; this one's return value is refused")
        session.journal.closed()

    def _result(self, value: Any) -> Stored | None:
        try:
            if self._session.payloads.secret_in_clear(value):
                return None
            return self._session.payloads.save(value, "return", value.__class__)
        except Exception as error:  # the value may be any object of the author's
            # Airflow may be able to hand it on; we only keep what we can read back.
            self._services.host.log(f"aiflow: the return value is not kept in the ledger: {error}")
            return None

    def signal_behind(self, error: BaseException) -> FlowSignal | None:
        """
        Say as what the attempt ends instead, where its flow had to stop whatever the author's code made of that.

        :param error: what came out of the author's code.
        :return: ``None``: by the error itself.
        """
        if isinstance(error, FlowSignal):
            return error
        if isinstance(error, BaseExceptionGroup) and (signals := error.subgroup(FlowSignal)) is not None:
            # A task group of the author's wraps what its tasks raised.
            first: FlowSignal | BaseExceptionGroup[FlowSignal] = signals
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            return self._gate.signal or first
        return None if self._services.host.ending(error) is None else self._gate.signal

    def fails_by(self, error: BaseException) -> bool:
        """Say whether an error is the end of the task's own code. A doubt is none: a person's word is waited for."""
        if self.forked or isinstance(error, EffectInDoubtError) or self.signal_behind(error) is not None:
            return False
        return self._services.host.ending(error) is ExecutionState.FAILED

    def undo_after(self, error: BaseException, for_good: Callable[[BaseException], bool]) -> None:
        """
        Take back what this attempt can, before its end is recorded, where no further try follows.

        :param for_good: says whether none follows an error of the author's code.
        """
        cancelled = not self.forked and isinstance(self.signal_behind(error), AttemptCancelled)
        # Nobody lets a try of a cancelled run follow.
        if cancelled or (self.fails_by(error) and (self._gate.cancelled or for_good(error))):
            cancelled = self._gate.cancelled
            self._gate.reopen()
            undo_all(self._session, cancelled=cancelled)

    def left_by(self, signal: FlowSignal) -> None:
        """Leave without an end of its own: a later attempt is at work, this one comes back, or a person wishes so."""
        if isinstance(signal, AttemptCancelled):
            self._services.host.log(f"aiflow: {signal}: nothing more starts")
            self._ended(ExecutionState.CANCELLED)
        elif isinstance(signal, AttemptParked):
            # When a person's answer comes, nobody knows: the host says how it waits.
            back = "" if isinstance(signal, AttemptAsks) else f"; comes back in {signal.delay:.0f} s"
            self._services.host.log(f"aiflow: parked: {signal.why}{back}")
            self._ended(ExecutionState.PAUSED, self._services.host.redact(signal.why))
        else:
            self.released("was superseded")

    def ended_by(self, error: BaseException) -> None:
        """Record another end than success."""
        state = ExecutionState.FAILED
        if not isinstance(error, EffectInDoubtError):
            ending = self._services.host.ending(error)
            if ending is None:
                self.released("was interrupted")
                return
            state = ending
        self._ended(state)

    def _ended(self, state: ExecutionState, reason: str | None = None) -> None:
        try:
            self._session.recorder.flush()
            self._watch.ending()
            self._patience.over(lambda: self._services.ledger.finish(self._lease, state, result=None, reason=reason))
        except Exception as error:  # what the body raised must not be hidden by it
            self._services.host.log(f"the end of this attempt could not be recorded: {error}", warning=True)

    def released(self, how: str) -> None:
        """
        Give the lease back without a state.

        :param how: the end, for the log.
        """
        self._watch.ending()
        try:
            self._services.ledger.let_go(self._lease)
        except Exception as error:
            self._services.host.log(f"this attempt {how}; its lease lapses by itself: {error}", warning=True)

    def close(self) -> None:
        """Stop what runs beside the body."""
        self._gate.end("has ended")
        self._watch.close()
        self._alarms.close()
        self._interrupts.close()
        for end in self._at_end:
            end()
        for targets in self._targets:
            targets.close()
        self._meter.flush()
