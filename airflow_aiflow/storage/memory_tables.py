"""The tables of the memory ledger: the columns of the SQL schema that its statements need, and the same constraints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from airflow_aiflow.durable.attempt import Counters, Owner, Recovery
from airflow_aiflow.durable.effect import Decision, EffectState
from airflow_aiflow.durable.execution import Asked, ExecutionState, Lease
from airflow_aiflow.durable.identity import MAX_KEY_LENGTH, EffectId, ExecutionId
from airflow_aiflow.durable.inbox import QuestionWrite
from airflow_aiflow.durable.items import FailedItem
from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.durable.record import StepRecord, Stored
from airflow_aiflow.exceptions import LedgerError
from airflow_aiflow.storage.rows import Row


@dataclass(slots=True)
class ExecutionRow:
    """Hold a row of ``execution``."""

    pk: int
    execution: ExecutionId
    state: ExecutionState = ExecutionState.RUNNING
    generation: int = 1
    fence: int = 1
    finished_at: datetime | None = None
    heard_at: datetime | None = None
    pause_reason: str | None = None
    result: Stored | None = None
    seal: bytes | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class LeaseRow:
    """Hold a row of ``lease``; moments are the clock's monotonic seconds."""

    fence: int
    expires_at: float
    progress_at: float
    step_name: str | None = None
    wanted_by: UUID | None = None
    step_timeout: float | None = None


@dataclass(slots=True)
class AttemptRow:
    """Hold a row of ``attempt``; moments are the clock's monotonic seconds, the owner is JSON."""

    number: int
    counters: Counters
    sign: str
    owner: str
    upstream_digest: bytes | None
    started_at: float
    prior_lease_until: float | None
    ended_at: float | None = None
    ending: str | None = None
    recovery: Recovery = "auto"
    max_recoveries: int | None = None
    died_in: str | None = None
    #: Whether our own recovery made the clear that it comes from.
    requeued: bool = False
    #: The most tries as a person's clear left them.
    round: int = 0
    #: Grows with every take-over and asking, as the database's clock does.
    turn: int = 0

    def read_owner(self) -> Owner:
        """Take the owner out of its JSON."""
        return Owner.from_plain(json.loads(self.owner))


@dataclass(slots=True)
class IntentRow:
    """Hold a row of ``intent``."""

    intent_id: UUID
    no: int
    repeat: int
    lease: Lease
    generation: int
    request: Stored
    request_fp: bytes
    timeout: float
    intended_at: float
    outcome: str | None = None
    result: Stored | None = None
    seal: bytes | None = None
    settled_at: float | None = None
    decision: Decision | None = None
    decided_by: str | None = None
    decided_at: float | None = None
    #: The result that came with a decision, and its seal.
    given: Stored | None = None
    given_seal: bytes | None = None
    number: int = 0
    #: Until when its process left it on purpose.
    left_until: float | None = None


@dataclass(slots=True)
class QuestionRow:
    """Hold a row of ``question``; moments are the clock's monotonic seconds."""

    number: int
    write: QuestionWrite
    execution_pk: int
    asked_at: float
    #: Of the first asking.
    asked_turn: int
    #: Grows with every asking: the last one is what the task waits for.
    turn: int
    answer: str | None = None
    answered_by: str = ""
    answered_at: float = 0.0
    note: str = ""


@dataclass(slots=True)
class WordRow:
    """Hold a row of ``word``: what a person said about an intent."""

    said_by: str
    said_at: float
    note: str


@dataclass(slots=True)
class EffectRow:
    """Hold a row of ``effect`` with its intents, by number from 1."""

    pk: int
    effect: EffectId
    state: EffectState
    execution_pk: int
    repeat: int = 0
    #: The intent whose success counts; ``None``: the effect has not succeeded.
    succeeded_no: int | None = None
    duplicate_suspected: bool = False
    intents: list[IntentRow] = field(default_factory=list)

    @property
    def current(self) -> IntentRow:
        """The current intent."""
        return self.intents[-1]

    @property
    def deciding(self) -> IntentRow:
        """The intent that decides what readers see: the one that succeeded, else the current one."""
        return self.intents[(self.succeeded_no or len(self.intents)) - 1]


class Tables:
    """Hold all rows, and answer what several statements ask."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.executions: dict[ExecutionId, ExecutionRow] = {}
        self.by_pk: dict[int, ExecutionRow] = {}
        self.leases: dict[int, LeaseRow] = {}
        self.attempts: dict[tuple[int, int], AttemptRow] = {}
        self.steps: dict[tuple[int, int], dict[bytes, Row]] = {}
        #: When, reuse key, execution, generation, step key.
        self.reuse: list[tuple[float, int, int, int, bytes]] = []
        self.failed_items: dict[tuple[int, int], dict[bytes, FailedItem]] = {}
        self.events: dict[tuple[int, int], dict[int, tuple[str, bytes]]] = {}
        self.effects: dict[EffectId, EffectRow] = {}
        self.intents: dict[UUID, tuple[EffectRow, IntentRow]] = {}
        self.numbers = itertools.count(1)
        self.turns = itertools.count(1)
        self.numbered: dict[int, tuple[EffectRow, IntentRow]] = {}
        self.questions: dict[int, QuestionRow] = {}
        #: By (number of the intent, "resolved" or "released").
        self.words: dict[tuple[int, str], WordRow] = {}
        #: By (execution, fence): the clear number of an open requeue mark, and what our clears have made of it.
        self.requeues: dict[tuple[int, int], tuple[int, int]] = {}
        #: By (DAG, run): what a person wishes of it.
        self.asked: dict[tuple[str, str], Asked | None] = {}

    def asked_of(self, execution: ExecutionId) -> Asked | None:
        """Say what a person wishes of an execution's run."""
        return self.asked.get((execution.dag_id, execution.run_id))

    def moment(self, monotonic: float) -> datetime:
        """Give a moment of the monotonic clock on the wall clock."""
        return self.clock.now() + timedelta(seconds=monotonic - self.clock.monotonic())

    def held(self, lease: Lease) -> LeaseRow | None:
        """Give the lease's row where that fence holds it, live or lapsed."""
        row = self.leases.get(lease.execution_pk)
        return row if row is not None and row.fence == lease.fence else None

    def live(self, lease: Lease) -> bool:
        """Say whether that fence holds its lease now."""
        row = self.held(lease)
        return row is not None and row.expires_at > self.clock.monotonic()

    def lease_end(self, lease: Lease) -> float | None:
        """Say until when that fence held, or holds, its lease."""
        row = self.held(lease)
        if row is not None:
            return row.expires_at
        following = self.attempts.get((lease.execution_pk, lease.fence + 1))
        if following is not None and following.prior_lease_until is not None:
            return following.prior_lease_until
        return self.attempts[lease.execution_pk, lease.fence].ended_at

    def gone_in(self, intent: IntentRow) -> float:
        """Count the seconds until the intent's owner is presumed gone."""
        end = self.lease_end(intent.lease)
        since = intent.intended_at if end is None else max(end, intent.intended_at)
        if intent.left_until is not None:
            following = self.attempts.get((intent.lease.execution_pk, intent.lease.fence + 1))
            since = max(since, intent.left_until if following is None else following.started_at)
        return since + intent.timeout - self.clock.monotonic()


def check(rule: str, holds: bool) -> None:
    """
    Stand for a CHECK of the schema.

    :raises LedgerError: if the rule does not hold.
    """
    if not holds:
        raise LedgerError(f"the ledger refused a row: {rule} must hold")


def check_stored(payload: Stored | None) -> None:
    """Check that the address of an artifact is a SHA-256."""
    check("length(sha256) = 32", payload is None or payload.sha256 is None or len(payload.sha256) == 32)


def check_step(step: StepRecord, generation: int) -> None:
    """Check what the schema checks in a step."""
    check("length(step_key) = 32", len(step.step_key) == 32)
    check("length(fingerprint) = 32", len(step.fingerprint) == 32)
    check("generation >= 1", generation >= 1)
    check_stored(step.result)


def check_effect(effect: EffectId) -> None:
    """Check what the schema checks in an effect's identity."""
    check("length(key) between 1 and 512", 1 <= len(effect.key) <= MAX_KEY_LENGTH)
