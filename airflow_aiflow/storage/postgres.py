"""
The ledger in PostgreSQL: each method is one statement of ``sql/`` and one commit.

Only the database's clock is compared. Where an answer needs a second look (a race was lost, an effect was there
already), that is a statement of its own, on a fresh snapshot, after the first has committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self
from uuid import UUID

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.effect import (
    AlreadyThere,
    Decision,
    EffectRecord,
    EffectState,
    FenceMoved,
    Intended,
    IntentAnswer,
    IntentWrite,
    LeaseLapsed,
    Outcome,
    Refusals,
    Settled,
)
from airflow_aiflow.durable.execution import Beat, ExecutionState, Lease, Standing, Taken
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.inbox import Question, QuestionWrite
from airflow_aiflow.durable.ports import Recorded
from airflow_aiflow.durable.record import Batch, Kept, StepRecord, Stored
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import LedgerError, LedgerUnavailableError
from airflow_aiflow.storage.answers import check_decision, check_end, check_person, check_question, check_sign, not_ours
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.event_bell import EventBell
from airflow_aiflow.storage.postgres_faults import NoTablesError
from airflow_aiflow.storage.postgres_items import PostgresItems
from airflow_aiflow.storage.postgres_limits import PostgresLimits
from airflow_aiflow.storage.postgres_params import (
    attempt_params,
    intent_params,
    label_params,
    lease_params,
    payload,
    question_params,
)
from airflow_aiflow.storage.postgres_record import record
from airflow_aiflow.storage.postgres_spending import PostgresSpending
from airflow_aiflow.storage.rows import STEP_WIDTH, effect_record, kept, standing, step_record, totals, utc
from airflow_aiflow.storage.rows import question as read_question
from airflow_aiflow.storage.schema import check_session, check_version
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import effect_identity, execution_identity, shown

#: Connections of one task process: its main thread, its heartbeat, and two of its map's threads at commit.
POOL_SIZE = 4

#: Steps that an attempt keeps in memory, about 60 MB of them: what a map made beyond that is read as it is reached.
MOST_STEPS = 20_000


class PostgresLedger:
    """
    Implement the port ``Ledger`` over a pool of connections.

    :param connections: lends them.
    :param bell: tells readers of new events; ``None``: they look by themselves.
    """

    def __init__(self, connections: Connections, bell: EventBell | None = None) -> None:
        #: Steps that an attempt keeps in memory.
        self.most_steps = MOST_STEPS
        self._connections = connections
        self._ask = connections.ask
        self._bell = bell
        self._items = PostgresItems(connections)
        self._limits = PostgresLimits(connections)
        self._spending = PostgresSpending(connections)

    @property
    def conninfo(self) -> str:
        """The address as libpq takes it, the password in it."""
        return self._connections.conninfo

    @property
    def items(self) -> PostgresItems:
        """What maps know of their items, over the same connections."""
        return self._items

    @property
    def limits(self) -> PostgresLimits:
        """The limits of model calls, over the same connections."""
        return self._limits

    @property
    def spending(self) -> PostgresSpending:
        """Budgets, wasted calls, waits, over the same connections."""
        return self._spending

    @classmethod
    def connect(cls, dsn: str, *, pool_size: int = POOL_SIZE, tells: bool = False) -> Self:
        """
        Open a ledger; whether it answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :param pool_size: most connections at once.
        :param tells: whether readers are told of new events, by a thread of its own.
        :raises AiflowConfigError: if the address is none.
        """
        connections = Connections(dsn, pool_size)
        return cls(connections, EventBell(connections.ask) if tells else None)

    def check(self) -> None:
        """
        Compare the schema's version with the code's, and the role's settings with what the statements need.

        :raises LedgerSchemaError: if the schema is missing, older or newer.
        :raises AiflowConfigError: if a setting would void a promise.
        """
        try:
            [(version, *session)] = self._ask(statement("schema_version"))
        except NoTablesError:
            version, session = None, []
        check_version(version)
        check_session(*session)

    def standing(self, execution: ExecutionId) -> Standing | None:
        """Tell how an execution stands."""
        rows = self._ask(statement("standing"), {"identity": execution_identity(execution)})
        return standing(rows[0]) if rows else None

    def take_over(
        self, attempt: Attempt, *, sign: Sign, seen: int | None, new_generation: bool, ttl: float, dead: bool = False
    ) -> Taken | None:
        """Raise the fence, set the lease, write the attempt and settle a requeue mark."""
        check_sign(sign, seen=seen)
        params = attempt_params(attempt, sign, ttl)
        if seen is None:
            rows = self._ask(statement("take_first"), params)
        else:
            params |= {"seen": seen, "new_generations": int(new_generation), "dead": dead}
            rows = self._ask(statement("take_over"), params)
        if not rows:
            return None
        execution_pk, fence, generation, number, until, siblings, failed_over, requeued, round_, asked = rows[0]
        if self._bell is not None:
            self._bell.follow(attempt.execution.run_id, execution_pk)
        lease = Lease(execution_pk, fence)
        if attempt.labels:
            self._ask(statement("label"), label_params(lease, attempt.labels))
        return Taken(
            lease,
            generation,
            sign,
            number,
            None if until is None else utc(until),
            siblings=siblings,
            failed_over=failed_over,
            requeued=requeued,
            round=round_,
            asked=asked,
        )

    def want(self, execution_pk: int, fence: int, newcomer: UUID) -> bool:
        """Ask the live owner for the lease."""
        params = {"execution_id": execution_pk, "fence": fence, "newcomer": newcomer}
        return bool(self._ask(statement("want"), params))

    def recorded(self, lease: Lease, generation: int) -> Recorded:
        """Read everything to replay from."""
        params = {"execution_id": lease.execution_pk, "generation": generation}
        rows = self._ask(statement("recorded"), params | {"most": self.most_steps + 1})
        beside = [row[STEP_WIDTH] for row in rows if row[STEP_WIDTH] is not None]
        steps, sums = [step_record(row) for row in rows if row[STEP_WIDTH] is None], None
        if len(steps) > self.most_steps:
            *others, (*_, sums) = self._ask(statement("recorded_rest"), params)
            steps = list({step.step_key: step for step in [*steps, *map(step_record, others)]}.values())
        return Recorded(
            steps=steps,
            effects=[effect_record(one) for one in beside if "numbers" not in one],
            numbers={int(fence): number for one in beside for fence, number in (one.get("numbers") or {}).items()},
            totals=None if sums is None else totals(sums),
        )

    def kept(self, lease: Lease, generation: int, step_keys: Sequence[bytes]) -> list[Kept]:
        """Read what is recorded under these keys."""
        params = {"execution_id": lease.execution_pk, "generation": generation, "step_keys": list(step_keys)}
        return [kept(row) for row in self._ask(statement("kept"), params)]

    def step(self, lease: Lease, generation: int, step_key: bytes) -> StepRecord | None:
        """Read one step whole."""
        params = {"execution_id": lease.execution_pk, "generation": generation, "step_keys": [step_key]}
        rows = self._ask(statement("steps_by_key"), params)
        return step_record(rows[0]) if rows else None

    def beat(
        self, lease: Lease, *, ttl: float, idle: float, step: str | None, step_timeout: float | None = None
    ) -> Beat:
        """Renew the lease and carry the progress."""
        params = lease_params(lease) | {
            "ttl": ttl,
            "idle": idle,
            "step_name": None if step is None else shown(step),
            "step_timeout": step_timeout,
        }
        rows = self._ask(statement("beat"), params)
        return Beat(held=True, wanted=rows[0][0], asked=rows[0][1]) if rows else Beat(held=False, wanted=False)

    def let_go(self, lease: Lease) -> None:
        """End the lease now, where it is still ours."""
        self._ask(statement("let_go"), lease_params(lease))

    def record(self, lease: Lease, generation: int, batch: Batch) -> list[StepRecord | None]:
        """Write steps and events in one commit."""
        try:
            return record(self._connections, lease, generation, batch)
        finally:
            if self._bell is not None and batch.events:
                self._bell.ring(lease.execution_pk)

    def intend(self, lease: Lease, intent: IntentWrite) -> IntentAnswer:
        """Write an intent under the locked fence, or tell why not."""
        held = self._ask(statement("intend"), intent_params(lease, intent), small=True)
        if not held:
            return LeaseLapsed() if self._ask(statement("holds"), lease_params(lease)) else FenceMoved()
        intent_no, repeat = held[0]
        if intent_no is not None:
            return Intended(intent.intent_id, intent_no, repeat)
        found = self.effect(intent.effect)
        if found is None:
            raise LedgerUnavailableError(f"effect {intent.effect} went away while it was looked at: try again")
        if found.intent_id == intent.intent_id and found.state is EffectState.INTENDED:
            return Intended(found.intent_id, found.intent_no, found.repeat)
        return AlreadyThere(found)

    def settle(self, intent_id: UUID, outcome: Outcome, *, result: Stored | None, seal: bytes | None = None) -> Settled:
        """Record an intent's outcome; never refused."""
        params = {"intent_id": intent_id, "outcome": outcome, "seal": seal} | payload("result", result)
        rows = self._ask(statement("settle"), params, small=True) or self._ask(
            statement("settled"), {"intent_id": intent_id}
        )
        if not rows:
            raise LedgerError(f"there is no intent {intent_id}: its outcome can't be recorded in this ledger")
        return Settled(EffectState(rows[0][0]), rows[0][1])

    def doubt(self, lease: Lease, intent_id: UUID) -> bool:
        """Move ``intended`` to ``in_doubt`` under our live lease."""
        [(in_doubt,)] = self._ask(statement("doubt"), lease_params(lease) | {"intent_id": intent_id})
        return bool(in_doubt)

    def leave(self, lease: Lease, intent_id: UUID, *, seconds: float | None) -> bool:
        """Note that an open call is left on purpose, or in this attempt's hands again."""
        params = lease_params(lease) | {"intent_id": intent_id, "seconds": seconds}
        return bool(self._ask(statement("leave"), params))

    def refused(self, lease: Lease, effect: EffectId) -> Refusals:
        """Count the calls that the processes of this try made in vain before this one."""
        params = lease_params(lease) | {"identity": effect_identity(effect)}
        [(number, since)] = self._ask(statement("refused"), params)
        return Refusals(number, None if since is None else utc(since))

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
        """Apply an attempt's own decision: a compare-and-set."""
        check_decision(decision, has_result=result is not None)
        params = lease_params(lease) | {"intent_id": intent_id, "decision": decision, "decided_by": shown(by)}
        given = payload("given", result) | {"given_seal": None if result is None else seal}
        [(stands,)] = self._ask(statement("decide"), params | given)
        return bool(stands)

    def ask(self, lease: Lease, question: QuestionWrite) -> Question:
        """Put a question into the inbox, or find it there."""
        check_question(question)
        if not self._ask(statement("ask"), lease_params(lease) | question_params(question)):
            raise not_ours(lease)
        rows = self._ask(statement("question_by_identity"), {"identity": question.bound_to})
        if not rows:
            raise LedgerUnavailableError(f"question '{question.name}' went away while it was looked at: try again")
        return read_question(rows[0][0])

    def compensated(self, lease: Lease, intent_id: UUID) -> bool:
        """Note that what an intent did is undone."""
        [(undone,)] = self._ask(statement("compensated"), lease_params(lease) | {"intent_id": intent_id})
        return bool(undone)

    def release(self, lease: Lease, intent_id: UUID, *, by: str, note: str) -> bool:
        """Carry out a word that a done effect may be done once more."""
        check_person(by)
        params = lease_params(lease) | {"intent_id": intent_id, "by": shown(by), "note": shown(note)}
        [(released,)] = self._ask(statement("release_held"), params)
        return bool(released)

    def effect(self, effect: EffectId) -> EffectRecord | None:
        """Read one effect."""
        rows = self._ask(statement("effect_by_identity"), {"identity": effect_identity(effect)})
        return effect_record(rows[0][0]) if rows else None

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
        params = {
            "state": state.value,
            "seal": seal if state is ExecutionState.SUCCEEDED else None,
            "reason": shown(reason) if reason is not None and state is ExecutionState.PAUSED else None,
        }
        [(ours,)] = self._ask(statement("finish"), lease_params(lease) | params | payload("result", result))
        return bool(ours)

    def heard(self, lease: Lease) -> bool:
        """Note that Airflow knows of the success."""
        return bool(self._ask(statement("heard"), lease_params(lease)))

    def close(self) -> None:
        """Give the connections back."""
        if self._bell is not None:
            self._bell.close()
        self._connections.close()
