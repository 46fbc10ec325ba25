"""
Commit what an attempt records.

Who comes while a commit is under way waits, and the next one to hold the lock commits all that is queued: parallel
units share commits, and the cursor (fence, seq) has no holes, because numbers are given under that same lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import tenacity

from airflow_aiflow.durable.effect import Answer, Decision, IntentWrite, Outcome, Settled
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.ports import Clock, Ledger
from airflow_aiflow.durable.record import Batch, EventRecord, StepRecord, Stored
from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.runtime.spool import Spool

R = TypeVar("R")

#: First and longest pause between two tries to reach the ledger: a restarted server is back within a second or two.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0


def with_patience(call: Callable[[], R], clock: Clock, patience: float) -> R:
    """
    Repeat a call while the ledger can't be reached.

    :param call: idempotent.
    :param clock: waits.
    :param patience: seconds after which the last error is raised.
    :raises LedgerUnavailableError: when the patience is used up.
    """
    try:
        return call()
    except LedgerUnavailableError:
        if patience <= 0:
            raise
    # Only now is tenacity's bookkeeping paid for: a recorded step has no time for it.
    deadline = clock.monotonic() + patience

    def out_of_patience(_state: tenacity.RetryCallState) -> bool:
        return clock.monotonic() >= deadline

    def sleep(seconds: float) -> None:
        clock.wait(seconds)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(LedgerUnavailableError),
        wait=tenacity.wait_random_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE),
        stop=out_of_patience,
        sleep=sleep,
        reraise=True,
    )
    return retrying(call)


class _Ticket:
    __slots__ = ("done", "error", "events", "prior", "steps")

    def __init__(self, steps: list[StepRecord], events: list[EventRecord]) -> None:
        self.steps = steps
        self.events = events
        self.prior: list[StepRecord | None] = []
        self.error: Exception | None = None
        self.done = False


class Recorder:
    """
    Record steps, events and outcomes of one attempt. Safe for use from several threads.

    :param patience: seconds for which a lost ledger is retried before an outcome goes to the spool.
    """

    def __init__(
        self, ledger: Ledger, lease: Lease, generation: int, *, clock: Clock, spool: Spool | None, patience: float
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._generation = generation
        self._clock = clock
        self._spool = spool
        self._patience = patience
        self._queue: list[_Ticket] = []
        self._queue_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._next_seq = 1

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """
        Queue an event; it is committed with whatever is committed next.

        :param kind: what happened.
        :param data: anything that can be stored.
        """
        event = EventRecord(kind, encode(data).data)
        with self._queue_lock:
            self._queue.append(_Ticket([], [event]))

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """
        Commit an event.

        :param kind: what happened.
        :param data: anything that can be stored.
        """
        self._commit(_Ticket([], [EventRecord(kind, encode(data).data)]))

    def step(self, record: StepRecord, event: dict[str, Any]) -> StepRecord | None:
        """
        Commit a step with its event; a result that can't reach the ledger is spooled before the error is raised.

        :param record: the result.
        :param event: data of its ``step`` event.
        :return: the record that was there first, ``None`` where this one was written.
        """
        ticket = _Ticket([record], [EventRecord("step", encode(event).data)])
        self._commit(ticket)
        return ticket.prior[0]

    def flush(self) -> None:
        """Commit what is queued."""
        self._commit(_Ticket([], []))

    def intend(self, intent: IntentWrite) -> Answer:
        """
        Write an intent; the client-made id makes a repeat after a lost acknowledgement harmless.

        :param intent: what is about to be done.
        """
        return self._patiently(lambda: self._ledger.intend(self._lease, intent))

    def decide(self, intent_id: UUID, decision: Decision, *, by: str) -> bool:
        """
        Apply this attempt's own decision on an effect in doubt.

        :param intent_id: the intent that the decision is about.
        :param decision: what was decided.
        :param by: who decided.
        """
        return self._patiently(lambda: self._ledger.decide(self._lease, intent_id, decision, by=by))

    def _patiently(self, call: Callable[[], R]) -> R:
        return with_patience(call, self._clock, self._patience)

    def settle(self, intent_id: UUID, outcome: Outcome, result: Stored | None, seal: bytes | None = None) -> Settled:
        """
        Record an intent's outcome; one that can't reach the ledger is spooled before the error is raised.

        :param intent_id: the intent.
        :param outcome: what became of the call.
        :param result: of a success.
        :param seal: over the result.
        """
        try:
            return self._patiently(lambda: self._ledger.settle(intent_id, outcome, result=result, seal=seal))
        except LedgerUnavailableError as error:
            if self._spool is not None:
                path = self._spool.keep_outcome(intent_id, outcome, result, seal)
                error.add_note(f"aiflow: the outcome is kept in {path.name} in the spool and taken in by the next try")
            raise

    def _commit(self, ticket: _Ticket) -> None:
        with self._queue_lock:
            self._queue.append(ticket)
        with self._commit_lock:
            if not ticket.done:
                with self._queue_lock:
                    tickets, self._queue = self._queue, []
                self._write(tickets)
        if ticket.error is not None:
            raise ticket.error

    def _write(self, tickets: list[_Ticket]) -> None:
        steps = tuple(record for ticket in tickets for record in ticket.steps)
        events = tuple(event for ticket in tickets for event in ticket.events)
        error: Exception | None = None
        prior: list[StepRecord | None] = []
        if steps or events:
            batch = Batch(steps, events, self._next_seq)
            try:
                prior = self._patiently(lambda: self._ledger.record(self._lease, self._generation, batch))
                self._next_seq += len(events)
            except Exception as caught:
                error = self._kept(caught, steps)
        position = 0
        for ticket in tickets:
            ticket.prior = prior[position : position + len(ticket.steps)]
            position += len(ticket.steps)
            ticket.error = error
            ticket.done = True

    def _kept(self, error: Exception, steps: tuple[StepRecord, ...]) -> Exception:
        if isinstance(error, LedgerUnavailableError) and steps and self._spool is not None:
            path = self._spool.keep_steps(self._lease, self._generation, steps)
            error.add_note(f"aiflow: {len(steps)} result(s) are kept in {path.name} in the spool")
        return error
