"""
What the ledger's contract tests stand on: values to write, and one face for looking behind each ledger.

A ``World`` lets a test pass time and read what the port does not show, so that every test runs on every ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Protocol
from uuid import UUID, uuid4

import psycopg

from airflow_aiflow.durable.attempt import Attempt, Counters, Owner
from airflow_aiflow.durable.effect import IntentWrite
from airflow_aiflow.durable.execution import Lease, Taken
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.inbox import Inbox, QuestionWrite
from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import StepRecord, Stored, Usage
from airflow_aiflow.durable.sign import read_sign
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_inbox import MemoryInbox
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox

TTL = 30.0
TIMEOUT = 60.0


class FakeClock:
    """Stand still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        """Give the seconds that tests let pass."""
        return self.seconds

    def now(self) -> datetime:
        """Give a wall clock that moves with them."""
        return datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def wait(self, seconds: float, *, until: Callable[[], bool] | None = None) -> bool:
        """Move on."""
        self.seconds += seconds
        return until is not None and until()


@dataclass(frozen=True)
class Seen:
    """Hold what a ledger keeps of an execution and the port does not show."""

    state: str
    has_result: bool
    finished: bool
    heard: bool
    #: (number, sign, ending) of each attempt, by fence.
    attempts: list[tuple[int, str, str | None]]
    #: (fence, seq, kind, data) of each event.
    events: list[tuple[int, int, str, bytes]]
    step_in_hand: str | None
    pause_reason: str | None
    step_timeout: float | None
    #: Where each attempt died, the word on recovery that it came with, and how often, by fence.
    recovery: list[tuple[str | None, str, int | None]]
    labels: dict[str, str]


class World(Protocol):
    """Let a test pass time and look behind a ledger."""

    ledger: Ledger
    inbox: Inbox

    def pass_time(self, seconds: float) -> None:
        """Make everything that is written so much older."""

    def look(self, execution_pk: int) -> Seen:
        """Read an execution."""

    def close(self) -> None:
        """Close what looks behind the ledger."""


class MemoryWorld:
    """Be the world of the memory ledger."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryLedger(self.clock)
        self.ledger: Ledger = self.memory
        self.inbox: Inbox = MemoryInbox(self.memory)

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.seconds += seconds

    def look(self, execution_pk: int) -> Seen:
        """Read the tables."""
        tables = self.memory._tables
        row = tables.by_pk[execution_pk]
        lease = tables.leases.get(execution_pk)
        attempts = sorted((fence, found) for (pk, fence), found in tables.attempts.items() if pk == execution_pk)
        return Seen(
            state=row.state.value,
            has_result=row.result is not None,
            finished=row.finished_at is not None,
            heard=row.heard_at is not None,
            attempts=[(found.number, found.sign, found.ending) for _, found in attempts],
            events=sorted(
                (fence, seq, kind, payload)
                for (pk, fence), found in tables.events.items()
                if pk == execution_pk
                for seq, (kind, payload) in found.items()
            ),
            step_in_hand=None if lease is None else lease.step_name,
            pause_reason=row.pause_reason,
            step_timeout=None if lease is None else lease.step_timeout,
            recovery=[(found.died_in, found.recovery, found.max_recoveries) for _, found in attempts],
            labels=dict(row.labels),
        )

    def close(self) -> None:
        """Do nothing."""


class PostgresWorld:
    """
    Be the world of the PostgreSQL ledger, used by the role that tasks use.

    :param dsn: address for that role.
    :param owner: address for the tables' owner, who looks behind it.
    """

    def __init__(self, dsn: str, owner: str) -> None:
        connections = Connections(dsn, 8)
        self.ledger: Ledger = PostgresLedger(connections)
        self.inbox: Inbox = PostgresInbox(connections)
        self.dsn = dsn
        self.behind = psycopg.connect(owner, autocommit=True)

    def pass_time(self, seconds: float) -> None:
        """Move every moment that is written into the past."""
        with self.behind.transaction():
            for statement in _AGE:
                self.behind.execute(statement, {"past": timedelta(seconds=seconds)})

    def look(self, execution_pk: int) -> Seen:
        """Read the tables."""
        one = {"pk": execution_pk}
        [(state, result, finished, heard, reason)] = self.behind.execute(
            "select state, num_nonnulls(result, result_sha256) = 1, finished_at is not null, heard_at is not null,"
            " pause_reason from aiflow.execution where execution_id = %(pk)s",
            one,
        ).fetchall()
        attempts = self.behind.execute(
            "select number, sign, ending from aiflow.attempt where execution_id = %(pk)s order by fence", one
        )
        events = self.behind.execute(
            "select fence, seq, kind, data from aiflow.event where execution_id = %(pk)s order by fence, seq", one
        )
        leases = self.behind.execute(
            "select step_name, step_timeout from aiflow.lease where execution_id = %(pk)s", one
        ).fetchall()
        recovery = self.behind.execute(
            "select died_in, recovery::text, max_recoveries from aiflow.attempt where execution_id = %(pk)s"
            " order by fence",
            one,
        )
        labels = self.behind.execute("select name, value from aiflow.label where execution_id = %(pk)s", one)
        return Seen(
            state=state,
            has_result=result,
            finished=finished,
            heard=heard,
            attempts=attempts.fetchall(),
            events=events.fetchall(),
            step_in_hand=leases[0][0] if leases else None,
            pause_reason=reason,
            step_timeout=leases[0][1] if leases else None,
            recovery=recovery.fetchall(),
            labels=dict(labels.fetchall()),
        )

    def close(self) -> None:
        """Close the look behind."""
        self.behind.close()


_AGE = (
    "update aiflow.reuse set recorded_at = recorded_at - %(past)s",
    "update aiflow.lease set expires_at = expires_at - %(past)s, progress_at = progress_at - %(past)s",
    (
        "update aiflow.attempt set started_at = started_at - %(past)s, ended_at = ended_at - %(past)s,"
        " prior_lease_until = prior_lease_until - %(past)s"
    ),
    (
        "update aiflow.intent set intended_at = intended_at - %(past)s, settled_at = settled_at - %(past)s,"
        " decided_at = decided_at - %(past)s, left_until = left_until - %(past)s"
    ),
    (
        "update aiflow.question set asked_at = asked_at - %(past)s, expires_at = expires_at - %(past)s,"
        " asked_again_at = asked_again_at - %(past)s, answered_at = answered_at - %(past)s"
    ),
    "update aiflow.word set said_at = said_at - %(past)s",
    "update aiflow.limit_share set expires_at = expires_at - %(past)s",
    # By way of where no other row is: a key is checked row by row.
    "update aiflow.limit_use set second = second - %(past)s - interval '365000 days'",
    "update aiflow.limit_use set second = second + interval '365000 days'",
    "update aiflow.budget_hold set until = until - %(past)s",
    "update aiflow.model_wait set since = since - %(past)s",
)


def mark(world: World, lease: Lease, seen: int, until: int) -> None:
    """Mark a fence for a requeue, as recovery does."""
    if isinstance(world, MemoryWorld):
        world.memory._tables.requeues[lease.execution_pk, lease.fence] = (seen, until)
    else:
        assert isinstance(world, PostgresWorld)
        world.behind.execute(
            "insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, clear_until, state)"
            " values (%s, %s, %s, %s, %s, 'marked')",
            [lease.execution_pk, lease.fence, uuid4(), seen, until],
        )


# --- values ---


def uuid7(moment: int) -> UUID:
    """Make a UUIDv7 of a moment in milliseconds."""
    return UUID(int=(moment << 80) | (7 << 76) | (2 << 62) | (uuid4().int & ((1 << 62) - 1)))


def owner_of(ti_id: UUID, *, pid: int = 4711) -> Owner:
    """Make an owner."""
    return Owner("worker-7.é", "b0071d00-0000-4000-8000-000000000001", 4026531836, pid, 123456789, str(ti_id))


def an_execution(**parts: Any) -> ExecutionId:
    """Make an execution that no other test has."""
    return ExecutionId(**({"dag_id": "billing", "run_id": f"manual__{uuid4()}", "task_id": "pay"} | parts))


def an_attempt(execution: ExecutionId, try_number: int = 1, **parts: Any) -> Attempt:
    """Make an attempt; a higher try is an automatic retry unless the parts say otherwise."""
    plain: dict[str, Any] = {
        "ti_id": uuid7(1_000 + try_number),
        "try_number": try_number,
        "max_tries": 3,
        "retries": 3,
        "clear_number": 0,
        "run_after": datetime(2026, 11, 29, 18, 0, 0, 123456, tzinfo=UTC),
    }
    digest = parts.pop("upstream_digest", None)
    counters = Counters(**(plain | parts))
    return Attempt(execution, counters, owner_of(counters.ti_id), upstream_digest=digest)


def take(ledger: Ledger, attempt: Attempt, *, new_generation: bool = False, ttl: float = TTL) -> Taken:
    """Take an execution over as the flow does, where nobody else is in the way."""
    standing = ledger.standing(attempt.execution)
    taken = ledger.take_over(
        attempt,
        sign=read_sign(standing.counters if standing else None, attempt.counters),
        seen=standing.fence if standing else None,
        new_generation=new_generation,
        ttl=ttl,
    )
    assert taken is not None
    return taken


def start(ledger: Ledger, **parts: Any) -> Taken:
    """Take over an execution that nobody knows."""
    return take(ledger, an_attempt(an_execution(**parts)))


def a_step(name: str = "page", result: bytes | Stored = b'"ok"', **parts: Any) -> StepRecord:
    """Make a step whose key hangs on its name and occurrence alone."""
    plain: dict[str, Any] = {
        "kind": "step",
        "name": name,
        "unit": "",
        "fingerprint": sha256(name.encode("utf-8", "surrogatepass")).digest(),
        "occurrence": 0,
        "fence": 1,
        "result": Stored(inline=result) if isinstance(result, bytes) else result,
        "seal": b"seal of " + name.encode("utf-8", "surrogatepass"),
        "ended_at": datetime(2026, 11, 30, 1, 2, 3, 456789, tzinfo=UTC),
        "duration_ms": 12.125,
        "usage": None,
    } | parts
    key = sha256(f"{name}/{plain['unit']}/{plain['occurrence']}".encode("utf-8", "surrogatepass")).digest()
    return StepRecord(**({"step_key": key} | plain))


def a_usage(**parts: Any) -> Usage:
    """Make the usage of a model call."""
    plain: dict[str, Any] = {"model": "openai:gpt-x", "response_id": "resp_1", "tokens_in": 1204, "tokens_out": 310}
    return Usage(**(plain | parts))


def an_effect(key: str | None = None, **parts: Any) -> EffectId:
    """Make an effect that no other test has."""
    return EffectId(
        **({"namespace": "dag:billing", "name": "charge", "key": key or f"order/{uuid4()}"} | parts),
    )


def an_intent(effect: EffectId, seen: int = 0, request: bytes = b'{"cents":1200}', **parts: Any) -> IntentWrite:
    """Make an intent with an id of its own."""
    plain: dict[str, Any] = {
        "intent_id": uuid4(),
        "effect": effect,
        "seen": seen,
        "request": Stored(inline=request),
        "request_fp": sha256(request).digest(),
        "timeout": TIMEOUT,
        "generation": 1,
    }
    return IntentWrite(**(plain | parts))


def a_question(effect: EffectId | None = None, intent_id: UUID | None = None, **parts: Any) -> QuestionWrite:
    """Make a question that no other test has; about an intent it is a doubt."""
    plain: dict[str, Any] = {
        "kind": "ask" if effect is None else "doubt",
        "name": "review" if effect is None else effect.name,
        "bound_to": uuid4().bytes * 2,
        "subject": "Did it?",
        "body": "Look at the target first.",
        "options": ("Approve", "Reject") if effect is None else ("Fail the task",),
        "effect": effect,
        "intent_id": intent_id,
    }
    return QuestionWrite(**(plain | parts))
