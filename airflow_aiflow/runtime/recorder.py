"""
Commit what an attempt records.

Who comes while a commit is under way waits, and the next one to hold the lock commits all that is queued: parallel
units share commits, and the cursor (fence, seq) has no holes, because numbers are given under that same lock. A result
or outcome that does not reach the ledger, for whatever reason, goes to the spool before the error is raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from airflow_aiflow.durable.effect import Decision, EffectRecord, IntentAnswer, IntentWrite, Outcome, Settled
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import Question, QuestionWrite
from airflow_aiflow.durable.items import FailedItem, Reusable, Wanted
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import Batch, EventRecord, Instead, Kept, SharedStep, StepRecord, Stored
from airflow_aiflow.exceptions import LedgerError, LedgerUnavailableError
from airflow_aiflow.runtime.meter import Meter
from airflow_aiflow.runtime.patience import Patience
from airflow_aiflow.runtime.spool import Spool
from airflow_aiflow.storage.payload_cipher import PayloadCipher

R = TypeVar("R")

#: Records that wait for a commit of somebody else's: a killed attempt asks the target again for these.
MOST_QUEUED = 32


class _Ticket:
    """Be what one unit wants to have committed."""

    __slots__ = ("divisible", "done", "error", "events", "first_seq", "prior", "steps")

    def __init__(
        self, steps: tuple[StepRecord, ...] = (), events: tuple[EventRecord, ...] = (), *, divisible: bool = False
    ) -> None:
        self.steps = steps
        #: Whether who brings it tries again in smaller parts, where the ledger refuses it as a whole.
        self.divisible = divisible
        self.events = events
        self.prior: list[StepRecord | None] = []
        self.first_seq = 0
        self.error: BaseException | None = None
        self.done = False


class Recorder:
    """
    Record steps, events and outcomes of one attempt. Safe for use from several threads.

    :param patience: how long a lost ledger is asked again.
    :param spool: where a result goes that the ledger does not take; ``None``: nowhere.
    :param cipher: encrypts the data of events; ``None``: they are in clear.
    :param meter: tells how long commits take.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        generation: int,
        *,
        patience: Patience,
        spool: Spool | None,
        meter: Meter,
        cipher: PayloadCipher | None = None,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._generation = generation
        self._patience = patience
        self._spool = spool
        self._meter = meter
        self._cipher = cipher or PayloadCipher()
        self._queue: list[_Ticket] = []
        self._queue_lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._next_seq = 1
        #: Events whose commit was not acknowledged: they may be there, so they keep their numbers.
        self._unsure: tuple[EventRecord, ...] = ()

    def note(self, kind: str, data: dict[str, Any]) -> None:
        """
        Queue an event; it is committed with whatever is committed next.

        :param kind: what happened.
        :param data: anything that can be stored.
        """
        ticket = _Ticket(events=(self._event(kind, data),))
        with self._queue_lock:
            self._queue.append(ticket)

    def event(self, kind: str, data: dict[str, Any]) -> int:
        """
        Commit an event. One whose commit was not acknowledged is committed with the next one.

        :param kind: what happened.
        :param data: anything that can be stored.
        :return: its number.
        """
        ticket = _Ticket(events=(self._event(kind, data),))
        self._commit(ticket)
        return ticket.first_seq

    def step(self, record: StepRecord, event: dict[str, Any], *, instead: Instead | None = None) -> StepRecord | None:
        """
        Commit a step with its event.

        :param record: the result.
        :param event: data of its ``step`` event.
        :param instead: what stands in the place of events that nobody needs once it is recorded.
        :return: the record that was there first, ``None`` where this one was written.
        """
        events = [self._event("step", event)]
        if instead is not None:
            events.append(replace(self._event(instead.kind, instead.data), replaces=instead.replaces))
        ticket = _Ticket((record,), tuple(events))
        self._commit(ticket)
        return ticket.prior[0]

    def group(
        self, records: Sequence[StepRecord], event: dict[str, Any]
    ) -> Sequence[StepRecord | BaseException | None]:
        """
        Commit the results of several items together, with one event.

        A row that the ledger refuses costs nobody else's: then each is committed by itself.

        :param records: the results.
        :param event: data of the ``items`` event.
        :return: for each the record that was there first, ``None`` where this one was written, or why it was not.
        """
        ticket = _Ticket(tuple(records), (self._event("items", event),), divisible=len(records) > 1)
        try:
            self._commit(ticket)
        except LedgerUnavailableError as error:
            return [error] * len(records)
        except Exception as error:
            return [error] if len(records) == 1 else [self._alone(record) for record in records]
        return ticket.prior

    def _alone(self, record: StepRecord) -> StepRecord | BaseException | None:
        ticket = _Ticket((record,))
        try:
            self._commit(ticket)
        except Exception as error:  # this one's
            return error
        return ticket.prior[0]

    def later(self, record: StepRecord, kind: str, event: dict[str, Any]) -> None:
        """
        Queue a step that is known elsewhere too, with its event; it is committed with whatever is committed next.

        :param record: the result.
        :param kind: of the event.
        :param event: its data.
        """
        with self._queue_lock:
            self._queue.append(_Ticket((record,), (self._event(kind, event),)))
            many = len(self._queue) >= MOST_QUEUED
        if many:
            self.flush()

    def _event(self, kind: str, data: dict[str, Any]) -> EventRecord:
        return EventRecord(kind, self._cipher.lock(encode(data).data))

    def flush(self) -> None:
        """Commit what is queued."""
        self._commit(_Ticket())

    def intend(self, intent: IntentWrite) -> IntentAnswer:
        """
        Write an intent; the client-made id makes a repeat after a lost acknowledgement harmless.

        :param intent: what is about to be done.
        """
        return self._patience.over(
            lambda: self._meter.commit("intend", lambda: self._ledger.intend(self._lease, intent))
        )

    def decide(
        self,
        intent_id: UUID,
        decision: Decision,
        *,
        by: str,
        result: Stored | None = None,
        seal: bytes | None = None,
    ) -> bool:
        """
        Apply this attempt's own decision on an effect in doubt.

        :param intent_id: the intent that the decision is about.
        :param decision: what was decided.
        :param by: who decided.
        :param result: with ``happened``, what the target gave.
        :param seal: over the result.
        """
        return self._patience.over(
            lambda: self._ledger.decide(self._lease, intent_id, decision, by=by, result=result, seal=seal)
        )

    def ask(self, question: QuestionWrite) -> Question:
        """
        Put a question into the inbox, or find it there.

        :param question: what is asked.
        """
        return self._patience.over(lambda: self._ledger.ask(self._lease, question))

    def compensated(self, intent_id: UUID) -> bool:
        """
        Note that what an intent did is undone.

        :param intent_id: the intent whose success counted.
        """
        return self._patience.over(lambda: self._ledger.compensated(self._lease, intent_id))

    def release(self, intent_id: UUID, *, by: str, note: str) -> bool:
        """
        Carry out a word that a done effect may be done once more.

        :param intent_id: the intent whose success counted.
        :param by: whose word it is.
        :param note: the reason.
        """
        return self._patience.over(lambda: self._ledger.release(self._lease, intent_id, by=by, note=note))

    def over(self, call: Callable[[Ledger, Lease], R]) -> R:
        """
        Make a rare call.

        :param call: idempotent; is given the ledger and this attempt's lease.
        """
        return self._patience.over(lambda: call(self._ledger, self._lease))

    def doubt(self, intent_id: UUID) -> bool:
        """
        Put an intent in doubt whose owner is gone.

        :param intent_id: the intent.
        """
        return self._patience.over(lambda: self._ledger.doubt(self._lease, intent_id))

    def effect(self, effect: EffectId) -> EffectRecord | None:
        """
        Read an effect as it is now.

        :param effect: its identity.
        """
        return self._patience.over(lambda: self._ledger.effect(effect))

    def find(self, step_key: bytes) -> StepRecord | None:
        """
        Read a step that is not in memory.

        :param step_key: the step's key.
        """
        return self._patience.over(lambda: self._ledger.step(self._lease, self._generation, step_key))

    def kept(self, step_keys: Sequence[bytes]) -> list[Kept]:
        """
        Read what is recorded under many keys.

        :param step_keys: the steps' keys.
        """
        return self._patience.over(lambda: self._ledger.kept(self._lease, self._generation, step_keys))

    def reusable(self, wanted: Sequence[Wanted], age: float) -> list[Reusable]:
        """
        Look for steps among other runs of the task.

        :param wanted: the steps, all of one name.
        :param age: seconds; older records do not count.
        """
        return self._patience.over(lambda: self._ledger.items.reusable(self._lease, wanted, age=age))

    def troubled(self) -> tuple[str | None, list[FailedItem]]:
        """Read how the attempt before ended, and the items that are known to have no result."""
        return self._patience.over(lambda: self._ledger.items.troubled(self._lease, self._generation))

    def fail_items(self, items: Sequence[FailedItem]) -> None:
        """
        Write down items that failed, or are at work.

        :param items: what is known of them now.
        """
        self._patience.over(lambda: self._ledger.items.fail_items(self._lease, self._generation, items))

    def shared_steps(self, step_keys: Sequence[bytes]) -> list[SharedStep]:
        """
        Look for many steps among what other map indexes of the task recorded before this clear.

        :param step_keys: the steps' keys.
        """
        return self._patience.over(lambda: self._ledger.items.shared_steps(self._lease, step_keys))

    def settle(self, intent_id: UUID, outcome: Outcome, result: Stored | None, seal: bytes | None = None) -> Settled:
        """
        Record an intent's outcome.

        :param intent_id: the intent.
        :param outcome: what became of the call.
        :param result: of a success.
        :param seal: over the result.
        """
        try:
            return self._patience.over(
                lambda: self._meter.commit(
                    "settle", lambda: self._ledger.settle(intent_id, outcome, result=result, seal=seal)
                )
            )
        except Exception as error:
            self._spooled(error, "the outcome", lambda spool: spool.keep_outcome(intent_id, outcome, result, seal))
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
        """Commit tickets; a row that the ledger refuses must cost nobody else's."""
        try:
            self._send(tickets)
        except Exception as error:
            for ticket in tickets:
                if len(tickets) == 1:
                    self._fail(ticket, error)
                elif isinstance(error, LedgerUnavailableError):
                    # An error of its own: its notes and traceback belong to one thread.
                    own = LedgerUnavailableError(str(error))
                    own.__cause__ = error
                    self._fail(ticket, own)
                else:
                    self._write([ticket])
        finally:
            for ticket in tickets:
                # Whatever came up through here, nobody may take an unwritten result for a written one.
                if not ticket.done:
                    self._fail(ticket, LedgerError("the commit was broken off"))

    def _send(self, tickets: list[_Ticket]) -> None:
        steps = tuple(record for ticket in tickets for record in ticket.steps)
        events = (*self._unsure, *(event for ticket in tickets for event in ticket.events))
        seq = self._next_seq + len(self._unsure)
        prior: list[StepRecord | None] = []
        if steps or events:
            batch = Batch(steps, events, self._next_seq)
            try:
                prior = self._patience.over(
                    lambda: self._meter.commit(
                        "record", lambda: self._ledger.record(self._lease, self._generation, batch)
                    )
                )
            except LedgerUnavailableError:
                self._unsure = events
                raise
            self._next_seq, self._unsure = self._next_seq + len(events), ()
        position = 0
        for ticket in tickets:
            ticket.prior = prior[position : position + len(ticket.steps)]
            position += len(ticket.steps)
            ticket.first_seq, seq = seq, seq + len(ticket.events)
            ticket.done = True

    def _fail(self, ticket: _Ticket, error: Exception) -> None:
        ticket.done, ticket.error = True, error
        if ticket.divisible and not isinstance(error, LedgerUnavailableError):
            return
        if ticket.steps:
            what = f"the result of '{ticket.steps[0].name}'"
            self._spooled(error, what, lambda spool: spool.keep_steps(self._lease, self._generation, ticket.steps))

    def _spooled(self, error: Exception, what: str, keep: Callable[[Spool], Path]) -> None:
        if self._spool is None:
            return
        try:
            path = keep(self._spool)
        except OSError as trouble:
            error.add_note(f"aiflow: {what} could not be kept in the spool either: {trouble}")
        else:
            error.add_note(f"aiflow: {what} is kept in {path.name} in the spool and taken in by the next try")
