"""
The ledger in PostgreSQL: each method is one statement of ``sql/`` and one commit.

Only the database's clock is compared. Where an answer needs a second look (a race was lost, an effect was there
already), that is a statement of its own, on a fresh snapshot, after the first has committed.
"""

from __future__ import annotations

from typing import Self
from uuid import UUID

from psycopg.types.json import Jsonb

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
    Settled,
)
from airflow_aiflow.durable.execution import Beat, ExecutionState, Lease, Standing, Taken
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.ports import Recorded
from airflow_aiflow.durable.record import Batch, StepRecord, Stored
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import LedgerError, LedgerUnavailableError
from airflow_aiflow.storage.answers import check_end, check_sign
from airflow_aiflow.storage.connections import Connections, Params
from airflow_aiflow.storage.postgres_faults import NoTablesError
from airflow_aiflow.storage.postgres_record import record
from airflow_aiflow.storage.rows import STEP_WIDTH, effect_record, standing, step_record, utc
from airflow_aiflow.storage.schema import check_session, check_version
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import effect_identity, execution_identity, shown

#: Connections of one task process: its main thread, its heartbeat, and two of its map's threads at commit.
POOL_SIZE = 4


class PostgresLedger:
    """
    Implement the port ``Ledger`` over a pool of connections.

    :param connections: lends them.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ask = connections.ask

    @classmethod
    def connect(cls, dsn: str, *, pool_size: int = POOL_SIZE) -> Self:
        """
        Open a ledger; whether it answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :param pool_size: most connections at once.
        :raises AiflowConfigError: if the address is none.
        """
        return cls(Connections(dsn, pool_size))

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
        self, attempt: Attempt, *, sign: Sign, seen: int | None, new_generation: bool, ttl: float
    ) -> Taken | None:
        """Raise the fence, set the lease, write the attempt and settle a requeue mark."""
        check_sign(sign, seen=seen)
        params = _attempt_params(attempt, sign, ttl)
        if seen is None:
            rows = self._ask(statement("take_first"), params)
        else:
            params |= {"seen": seen, "new_generations": int(new_generation)}
            rows = self._ask(statement("take_over"), params)
        if not rows:
            return None
        execution_pk, fence, generation, number, until = rows[0]
        return Taken(Lease(execution_pk, fence), generation, sign, number, None if until is None else utc(until))

    def want(self, execution_pk: int, fence: int, newcomer: UUID) -> bool:
        """Ask the live owner for the lease."""
        params = {"execution_id": execution_pk, "fence": fence, "newcomer": newcomer}
        return bool(self._ask(statement("want"), params))

    def recorded(self, lease: Lease, generation: int) -> Recorded:
        """Read, in one query, everything to replay from."""
        params = {"execution_id": lease.execution_pk, "generation": generation}
        rows = self._ask(statement("recorded"), params)
        return Recorded(
            steps=[step_record(row) for row in rows if row[STEP_WIDTH] is None],
            effects=[effect_record(row[STEP_WIDTH]) for row in rows if row[STEP_WIDTH] is not None],
        )

    def beat(self, lease: Lease, *, ttl: float, idle: float, step: str | None) -> Beat:
        """Renew the lease and carry the progress."""
        params = _lease_params(lease) | {
            "ttl": ttl,
            "idle": idle,
            "step_name": None if step is None else shown(step),
        }
        rows = self._ask(statement("beat"), params)
        return Beat(held=True, wanted=rows[0][0]) if rows else Beat(held=False, wanted=False)

    def let_go(self, lease: Lease) -> None:
        """End the lease now, where it is still ours."""
        self._ask(statement("let_go"), _lease_params(lease))

    def record(self, lease: Lease, generation: int, batch: Batch) -> list[StepRecord | None]:
        """Write steps and events in one commit."""
        return record(self._ask, lease, generation, batch)

    def intend(self, lease: Lease, intent: IntentWrite) -> IntentAnswer:
        """Write an intent under the locked fence, or tell why not."""
        held = self._ask(statement("intend"), _intent_params(lease, intent))
        if not held:
            return LeaseLapsed() if self._ask(statement("holds"), _lease_params(lease)) else FenceMoved()
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
        params = {"intent_id": intent_id, "outcome": outcome, "seal": seal} | _payload("result", result)
        rows = self._ask(statement("settle"), params) or self._ask(statement("settled"), {"intent_id": intent_id})
        if not rows:
            raise LedgerError(f"there is no intent {intent_id}: its outcome can't be recorded in this ledger")
        return Settled(EffectState(rows[0][0]), rows[0][1])

    def doubt(self, lease: Lease, intent_id: UUID) -> bool:
        """Move ``intended`` to ``in_doubt`` under our live lease."""
        [(in_doubt,)] = self._ask(statement("doubt"), _lease_params(lease) | {"intent_id": intent_id})
        return bool(in_doubt)

    def decide(self, lease: Lease, intent_id: UUID, decision: Decision, *, by: str) -> bool:
        """Apply an attempt's own decision: a compare-and-set."""
        params = _lease_params(lease) | {"intent_id": intent_id, "decision": decision, "decided_by": shown(by)}
        [(stands,)] = self._ask(statement("decide"), params)
        return bool(stands)

    def effect(self, effect: EffectId) -> EffectRecord | None:
        """Read one effect."""
        rows = self._ask(statement("effect_by_identity"), {"identity": effect_identity(effect)})
        return effect_record(rows[0][0]) if rows else None

    def finish(self, lease: Lease, state: ExecutionState, *, result: Stored | None, seal: bytes | None = None) -> bool:
        """Write an attempt's end and give the lease back."""
        check_end(state, has_result=result is not None)
        sealed = {"state": state.value, "seal": seal if state is ExecutionState.SUCCEEDED else None}
        [(ours,)] = self._ask(statement("finish"), _lease_params(lease) | sealed | _payload("result", result))
        return bool(ours)

    def heard(self, lease: Lease) -> bool:
        """Note that Airflow knows of the success."""
        return bool(self._ask(statement("heard"), _lease_params(lease)))

    def close(self) -> None:
        """Give the connections back."""
        self._connections.close()


def _lease_params(lease: Lease) -> dict[str, object]:
    return {"execution_id": lease.execution_pk, "fence": lease.fence}


def _payload(name: str, payload: Stored | None) -> dict[str, object]:
    """Give the two parameters of a payload's two columns."""
    return {
        name: None if payload is None else payload.inline,
        f"{name}_sha256": None if payload is None else payload.sha256,
    }


def _attempt_params(attempt: Attempt, sign: Sign, ttl: float) -> dict[str, object]:
    execution, counters = attempt.execution, attempt.counters
    return {
        "identity": execution_identity(execution),
        "dag_id": execution.dag_id,
        "run_id": execution.run_id,
        "task_id": execution.task_id,
        "map_index": execution.map_index,
        "ti_id": counters.ti_id,
        "try_number": counters.try_number,
        "max_tries": counters.max_tries,
        "retries": counters.retries,
        "clear_number": counters.clear_number,
        "run_after": counters.run_after,
        "sign": sign.value,
        "owner": Jsonb(attempt.owner.to_plain()),
        "upstream_digest": attempt.upstream_digest,
        "ttl": ttl,
    }


def _intent_params(lease: Lease, intent: IntentWrite) -> Params:
    effect = intent.effect
    return (
        _lease_params(lease)
        | _payload("request", intent.request)
        | {
            "identity": effect_identity(effect),
            "namespace": effect.namespace,
            "name": effect.name,
            "key": effect.key,
            "seen": intent.seen,
            "intent_id": intent.intent_id,
            "generation": intent.generation,
            "request_fp": intent.request_fp,
            "timeout": intent.timeout,
        }
    )
