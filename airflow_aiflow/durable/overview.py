"""What people read of a whole deployment: days, runs of a DAG, recoveries, batches, what a word finds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from airflow_aiflow.durable.identity import ExecutionId

SearchKind = Literal["effect", "run", "artifact"]


@dataclass(frozen=True, slots=True)
class DagSums:
    """
    Sum up some days of a DAG.

    :param runs: whose first durable task began then.
    :param executions: that began then.
    :param succeeded: attempts that ended so; likewise failed.
    :param recoveries: requeues of ours.
    """

    dag_id: str
    paid_calls: int = 0
    paid_cost: Decimal = Decimal(0)
    unpriced: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    replayed_calls: int = 0
    replayed_cost: Decimal = Decimal(0)
    reused_calls: int = 0
    runs: int = 0
    executions: int = 0
    succeeded: int = 0
    failed: int = 0
    recoveries: int = 0


@dataclass(frozen=True, slots=True)
class RunSums:
    """Sum up one run of a DAG, over all its executions, attempts and generations."""

    run_id: str
    began_at: datetime
    executions: int
    paid_calls: int
    paid_cost: Decimal
    unpriced: int
    replayed_calls: int
    replayed_cost: Decimal
    reused_calls: int
    recoveries: int
    in_doubt: int


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """
    Show what was found stalled, and what became of it.

    :param basis: what it was told by.
    :param decision: ``requeue``, ``quarantine``, ``settle`` or ``leave``.
    :param gone_on_at: when the next attempt began; ``None``: none has, or none of this execution ever ran.
    :param detect_seconds: from the stall until it was found.
    :param host: of the attempt that stalled.
    """

    number: int
    found_at: datetime
    kind: str
    basis: str
    execution: ExecutionId
    why: str
    decision: str
    gone_on_at: datetime | None
    detect_seconds: float
    host: str | None
    died_in: str | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """
    Show how far a map is.

    :param done: items that have ended, failed ones among them.
    :param total: ``None``: nobody knows before the end.
    :param rate: items a second since the attempt began with it; ``None``: too early to say.
    """

    execution: ExecutionId
    state: str
    live: bool
    name: str
    done: int
    total: int | None
    failed: int
    rate: float | None
    started_at: datetime
    ended_at: datetime | None

    @property
    def eta_seconds(self) -> float | None:
        """Seconds that are left at this rate."""
        if self.ended_at is not None or not self.live or not self.rate or self.total is None:
            return None
        return max(0.0, (self.total - self.done) / self.rate)


@dataclass(frozen=True, slots=True)
class Hit:
    """Show what a word has found; ``number`` is an intent's."""

    what: SearchKind
    label: str
    execution: ExecutionId
    number: int | None = None
    step_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class SaidView:
    """
    Show a word of a person that counted.

    :param said: the decision, ``released``, or the option that was chosen.
    :param what: a word of ``QuestionKind``.
    :param name: of the effect; ``None``: it was about none. So with the next three.
    :param state: of the effect now; ``None``: not looked up.
    :param subject: of the question.
    """

    number: int
    at: datetime
    by: str
    said: str
    what: str
    name: str | None
    key: str | None
    namespace: str | None
    state: str | None
    subject: str | None
    note: str
    execution: ExecutionId
