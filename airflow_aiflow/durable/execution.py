"""The states of an execution, what the ledger says of one before a take-over, and what a take-over gives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from airflow_aiflow.durable.attempt import Counters, OnClear, Owner
from airflow_aiflow.durable.sign import Sign

#: What a person wishes of a run, as its attempts learn it: to end, or to wait.
Asked = Literal["cancel", "hold"]


class ExecutionState(StrEnum):
    """Name the states; a killed attempt leaves ``running`` with a lapsed lease."""

    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the code's own error
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether the state carries a ``finished_at``."""
        return self in (ExecutionState.SUCCEEDED, ExecutionState.FAILED, ExecutionState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Lease:
    """Hold the time-bound right to work: the row it stands on and the fencing token that every start checks."""

    execution_pk: int
    fence: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Tell what the ledger knows of an execution before somebody takes it over; times are the database's."""

    execution_pk: int
    fence: int
    generation: int
    state: ExecutionState
    counters: Counters
    owner: Owner
    #: Seconds until the current lease lapses; zero or less: lapsed or let go.
    lease_left: float
    #: Whether Airflow knows of the success of the current attempt.
    heard: bool = False
    #: Of the current attempt: what had run above the task.
    upstream_digest: bytes | None = None
    #: Where our own recovery has marked this fence for a requeue: (the run's clear number before, the one that our
    #: clears have made of it at most); ``None``: no open mark.
    requeued_at: tuple[int, int] | None = None
    #: What a person who cleared it by `aiflow runs clear` asked of the next attempt: ``resume`` or ``fresh``.
    wish: OnClear | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Tell what a take-over gave."""

    lease: Lease
    generation: int
    sign: Sign
    #: The running number of this attempt of the execution, from 1: what people read as "attempt 3".
    number: int
    prior_lease_until: datetime | None
    #: Whether other map indexes of this task have recorded steps before this clear.
    siblings: bool = False
    #: Whether the ledger's server became another one while an attempt was at work: its last commits may be lost.
    failed_over: bool = False
    #: Whether our own recovery made the clear that this attempt comes from.
    requeued: bool = False
    #: The most tries as a person's clear left them: what an answer is valid for, whatever our own clears made of them.
    round: int | None = None
    #: What a person wishes of the run.
    asked: Asked | None = None
    #: Why a cleared task starts anew or resumes, for people; added after the ledger has answered.
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """Tell what a heartbeat found: is the lease still ours, does a newcomer ask for it, what does a person wish."""

    held: bool
    wanted: bool
    asked: Asked | None = None
