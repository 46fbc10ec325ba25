"""
A ledger in memory, for tests and for authors' unit tests.

It answers like the PostgreSQL ledger, which one contract suite shows, and keeps rows, not objects: what comes back was
taken apart and put together again. One lock stands for the database's row locks, the given clock for its clock.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.effect import Decision, EffectRecord, IntentAnswer, IntentWrite, Outcome, Refusals, Settled
from airflow_aiflow.durable.execution import Asked, Beat, ExecutionState, Lease, Standing, Taken
from airflow_aiflow.durable.identity import EffectId, ExecutionId, person_undo
from airflow_aiflow.durable.inbox import Question, QuestionWrite
from airflow_aiflow.durable.ports import Clock, Recorded
from airflow_aiflow.durable.record import Batch, EventRecord, Kept, StepRecord, Stored
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.storage import memory_attempts, memory_effects, memory_questions, memory_steps
from airflow_aiflow.storage.answers import check_decision, check_end, check_person, check_question, check_sign
from airflow_aiflow.storage.memory_items import MemoryItems
from airflow_aiflow.storage.memory_limits import MemoryLimits
from airflow_aiflow.storage.memory_spending import MemorySpending
from airflow_aiflow.storage.memory_tables import (
    AttemptRow,
    ExecutionRow,
    LeaseRow,
    Tables,
    check,
    check_step,
    check_stored,
)
from airflow_aiflow.storage.rows import step_record, step_row, whole_step
from airflow_aiflow.storage.text import execution_identity, shown

#: As with PostgreSQL.
MOST_STEPS = 20_000


class MemoryLedger:
    """
    Implement the port ``Ledger`` without a database.

    :param clock: stands for the database's clock; a test may move it.
    """

    def __init__(self, clock: Clock) -> None:
        #: While true, every method raises ``LedgerUnavailableError`` and changes nothing.
        self.unavailable = False
        #: How many of the next calls are carried out and then raise ``LedgerUnavailableError``: their answer is lost.
        self.lost_answers = 0
        #: Steps that an attempt keeps in memory.
        self.most_steps = MOST_STEPS
        self._tables = Tables(clock)
        self._lock = threading.Lock()
        self._limits = MemoryLimits(self, clock)
        self._spending = MemorySpending(self, clock)

    @property
    def limits(self) -> MemoryLimits:
        """The limits of model calls."""
        return self._limits

    @property
    def spending(self) -> MemorySpending:
        """Budgets, wasted calls, waits."""
        return self._spending

    @contextmanager
    def statement(self) -> Iterator[Tables]:
        """Give the tables to one statement, under the lock; the inbox in memory stands on them, too."""
        with self._lock:
            if self.unavailable:
                raise LedgerUnavailableError("the ledger in memory was made unavailable by a test")
            yield self._tables
            if self.lost_answers > 0:
                self.lost_answers -= 1
                raise LedgerUnavailableError("the ledger in memory lost its answer, as a test asked for")

    @property
    def items(self) -> MemoryItems:
        """What maps know of their items, on the same tables."""
        return MemoryItems(self.statement)

    def check(self) -> None:
        """Find nothing to complain of: there is no schema."""
        with self.statement():
            return

    def standing(self, execution: ExecutionId) -> Standing | None:
        """Tell how an execution stands."""
        execution_identity(execution)
        with self.statement() as tables:
            row = tables.executions.get(execution)
            if row is None:
                return None
            attempt = tables.attempts[row.pk, row.fence]
            lease = tables.held(Lease(row.pk, row.fence))
            return Standing(
                execution_pk=row.pk,
                fence=row.fence,
                generation=row.generation,
                state=row.state,
                counters=attempt.counters,
                owner=attempt.read_owner(),
                lease_left=0.0 if lease is None else lease.expires_at - tables.clock.monotonic(),
                heard=row.heard_at is not None,
                upstream_digest=attempt.upstream_digest,
                requeued_at=tables.requeues.get((row.pk, row.fence)),
            )

    def take_over(
        self, attempt: Attempt, *, sign: Sign, seen: int | None, new_generation: bool, ttl: float, dead: bool = False
    ) -> Taken | None:
        """Raise the fence, set the lease, write the attempt."""
        check_sign(sign, seen=seen)
        execution_identity(attempt.execution)
        digest = attempt.upstream_digest
        check("length(upstream_digest) = 32", digest is None or len(digest) == 32)
        with self.statement() as tables:
            row = tables.executions.get(attempt.execution)
            if (None if row is None else row.fence) != seen:
                return None
            now = tables.clock.monotonic()
            if row is None:
                row = ExecutionRow(len(tables.executions) + 1, attempt.execution)
                tables.executions[attempt.execution] = tables.by_pk[row.pk] = row
                number, until, requeued, round_ = 1, None, False, attempt.counters.max_tries
            else:
                number, until, requeued = memory_attempts.succeed(tables, row, attempt, dead=dead)
                round_ = memory_attempts.go_on(tables, row, attempt, requeued, new_generation)
            row.labels = attempt.labels or row.labels
            tables.leases[row.pk] = LeaseRow(fence=row.fence, expires_at=now + ttl, progress_at=now)
            tables.attempts[row.pk, row.fence] = AttemptRow(
                number=number,
                counters=attempt.counters,
                sign=sign.value,
                owner=json.dumps(attempt.owner.to_plain()),
                upstream_digest=digest,
                started_at=now,
                prior_lease_until=until,
                recovery=attempt.recovery,
                max_recoveries=attempt.max_recoveries,
                requeued=requeued,
                round=round_,
                turn=next(tables.turns),
            )
            return Taken(
                lease=Lease(row.pk, row.fence),
                generation=row.generation,
                sign=sign,
                number=number,
                prior_lease_until=None if until is None else tables.moment(until),
                siblings=memory_steps.any_shared(tables, row, attempt.counters.clear_number),
                requeued=requeued,
                round=round_,
                asked=tables.asked_of(attempt.execution),
            )

    def ask_run(self, dag_id: str, run_id: str, asked: Asked | None) -> None:
        """
        Wish something of a run, as a person does of a submission.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param asked: the wish; ``None``: it is taken back.
        """
        with self.statement() as tables:
            tables.asked[dag_id, run_id] = asked

    def want(self, execution_pk: int, fence: int, newcomer: UUID) -> bool:
        """Ask the live owner for the lease."""
        with self.statement() as tables:
            row = tables.held(Lease(execution_pk, fence))
            if row is None:
                return False
            row.wanted_by = newcomer
            return True

    def recorded(self, lease: Lease, generation: int) -> Recorded:
        """Read everything to replay from."""
        with self.statement() as tables:
            steps = tables.steps.get((lease.execution_pk, generation), {})
            me = tables.by_pk.get(lease.execution_pk)
            person = None if me is None else tables.executions.get(person_undo(me.execution))
            writers = (lease.execution_pk, None if person is None else person.pk)
            held, sums = memory_steps.recorded([step_record(row) for row in steps.values()], self.most_steps)
            return Recorded(
                steps=held,
                totals=sums,
                effects=[
                    memory_effects.read(tables, row) for row in tables.effects.values() if row.execution_pk in writers
                ],
                numbers={fence: row.number for (pk, fence), row in tables.attempts.items() if pk == lease.execution_pk},
            )

    def kept(self, lease: Lease, generation: int, step_keys: Sequence[bytes]) -> list[Kept]:
        """Read what is recorded under these keys."""
        with self.statement() as tables:
            steps = tables.steps.get((lease.execution_pk, generation), {})
            return [Kept.of(step_record(steps[key])) for key in dict.fromkeys(step_keys) if key in steps]

    def step(self, lease: Lease, generation: int, step_key: bytes) -> StepRecord | None:
        """Read one step whole."""
        with self.statement() as tables:
            row = tables.steps.get((lease.execution_pk, generation), {}).get(step_key)
            return None if row is None else step_record(row)

    def beat(
        self, lease: Lease, *, ttl: float, idle: float, step: str | None, step_timeout: float | None = None
    ) -> Beat:
        """Renew the lease and carry the progress."""
        with self.statement() as tables:
            row = tables.held(lease)
            if row is None:
                return Beat(held=False, wanted=False)
            now = tables.clock.monotonic()
            row.expires_at = now + ttl
            row.progress_at = max(row.progress_at, now - idle)
            row.step_name = None if step is None else shown(step)
            row.step_timeout = step_timeout
            asked = tables.asked_of(tables.by_pk[lease.execution_pk].execution)
            return Beat(held=True, wanted=row.wanted_by is not None, asked=asked)

    def let_go(self, lease: Lease) -> None:
        """End the lease now, where it is still ours."""
        with self.statement() as tables:
            if tables.held(lease) is not None:
                memory_attempts.end(tables, lease, "let_go")

    def record(self, lease: Lease, generation: int, batch: Batch) -> list[StepRecord | None]:
        """Write steps and events in one commit."""
        for step in batch.steps:
            check_step(step, generation)
        with self.statement() as tables:
            steps = tables.steps.setdefault((lease.execution_pk, generation), {})
            before: list[StepRecord | None] = []
            for step in batch.steps:
                prior = steps.get(step.step_key)
                before.append(None if prior is None else whole_step(prior))
                steps.setdefault(step.step_key, step_row(step))
                if prior is None and step.reuse_key is not None:
                    place = (step.reuse_key, lease.execution_pk, generation, step.step_key)
                    tables.reuse.append((tables.clock.monotonic(), *place))
            execution = tables.by_pk.get(lease.execution_pk)
            if execution is not None and execution.fence == lease.fence:
                events = tables.events.setdefault((lease.execution_pk, lease.fence), {})
                for seq, event in enumerate(batch.events, batch.first_seq):
                    events.setdefault(seq, (shown(event.kind), event.data))
                    if event.replaces:
                        memory_attempts.replace_events(tables, lease, event.replaces)
            return before

    def intend(self, lease: Lease, intent: IntentWrite) -> IntentAnswer:
        """Write an intent, or tell why not."""
        with self.statement() as tables:
            return memory_effects.intend(tables, lease, intent)

    def settle(self, intent_id: UUID, outcome: Outcome, *, result: Stored | None, seal: bytes | None = None) -> Settled:
        """Record an intent's outcome."""
        with self.statement() as tables:
            return memory_effects.settle(tables, intent_id, outcome, result, seal)

    def doubt(self, lease: Lease, intent_id: UUID) -> bool:
        """Move ``intended`` to ``in_doubt``."""
        with self.statement() as tables:
            return memory_effects.doubt(tables, lease, intent_id)

    def leave(self, lease: Lease, intent_id: UUID, *, seconds: float | None) -> bool:
        """Note that an open call is left on purpose, or in this attempt's hands again."""
        with self.statement() as tables:
            return memory_effects.leave(tables, lease, intent_id, seconds)

    def refused(self, lease: Lease, effect: EffectId) -> Refusals:
        """Count the calls that the processes of this try made in vain before this one."""
        with self.statement() as tables:
            return memory_effects.refused(tables, lease, effect)

    def decide(
        self,
        lease: Lease,
        intent_id: UUID,
        decision: Decision,
        *,
        by: str,
        result: Stored | None = None,
        seal: bytes | None = None,
    ) -> bool:
        """Apply an attempt's own decision."""
        check_decision(decision, has_result=result is not None)
        given = None if result is None else (result, seal)
        with self.statement() as tables:
            return memory_effects.decide(tables, lease, intent_id, decision, shown(by), given=given)

    def ask(self, lease: Lease, question: QuestionWrite) -> Question:
        """Put a question into the inbox, or find it there."""
        check_question(question)
        with self.statement() as tables:
            return memory_questions.ask(tables, lease, question)

    def compensated(self, lease: Lease, intent_id: UUID) -> bool:
        """Note that what an intent did is undone."""
        with self.statement() as tables:
            return memory_effects.compensated(tables, lease, intent_id)

    def release(self, lease: Lease, intent_id: UUID, *, by: str, note: str) -> bool:
        """Carry out a word that a done effect may be done once more."""
        check_person(by)
        with self.statement() as tables:
            return memory_effects.release(tables, lease, intent_id, shown(by), shown(note))

    def effect(self, effect: EffectId) -> EffectRecord | None:
        """Read one effect."""
        with self.statement() as tables:
            row = tables.effects.get(effect)
            return None if row is None else memory_effects.read(tables, row)

    def finish(
        self,
        lease: Lease,
        state: ExecutionState,
        *,
        result: Stored | None,
        seal: bytes | None = None,
        reason: str | None = None,
    ) -> bool:
        """Write an attempt's end and give the lease back."""
        check_end(state, has_result=result is not None)
        check_stored(result)
        with self.statement() as tables:
            row = tables.by_pk.get(lease.execution_pk)
            if row is None or row.fence != lease.fence:
                return False
            if row.state is ExecutionState.RUNNING:
                row.state, row.result, row.seal = state, result, seal
                row.finished_at = tables.clock.now() if state.finished else None
                row.pause_reason = None
                if reason is not None and state is ExecutionState.PAUSED:
                    row.pause_reason = shown(reason)
                memory_attempts.end(tables, lease, state.value)
            return True

    def heard(self, lease: Lease) -> bool:
        """Note that Airflow knows of the success."""
        with self.statement() as tables:
            row = tables.by_pk.get(lease.execution_pk)
            if row is None or row.fence != lease.fence or row.state is not ExecutionState.SUCCEEDED:
                return False
            row.heard_at = row.heard_at or tables.clock.now()
            return True

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def events(self, execution: ExecutionId) -> list[EventRecord]:
        """Give the events of all attempts in their order, for a test to look at."""
        with self._lock:
            row = self._tables.executions.get(execution)
            if row is None:
                return []
            by_fence = sorted((fence, found) for (pk, fence), found in self._tables.events.items() if pk == row.pk)
            return [EventRecord(*found[seq]) for _, found in by_fence for seq in sorted(found)]

    def pause_reason(self, execution: ExecutionId) -> str | None:
        """Say why an execution is paused, for a test to look at."""
        with self._lock:
            row = self._tables.executions.get(execution)
            return None if row is None else row.pause_reason

    def heard_at(self, execution: ExecutionId) -> datetime | None:
        """Say when Airflow's knowledge was noted, for a test to look at."""
        with self._lock:
            row = self._tables.executions.get(execution)
            return None if row is None else row.heard_at
