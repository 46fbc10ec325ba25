"""
What a stalled run looks like: the kinds, the evidence from the ledger and from Airflow, and the possible decisions.

Every age is in seconds, by the clock of the database that gave it: no worker's clock is compared with anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from airflow_aiflow.durable.attempt import Counters, Owner, Recovery
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId


class StallKind(StrEnum):
    """Name what is wrong with a run."""

    DEAD_WORKER = "dead_worker"
    DEAD_PROCESS = "dead_process"
    SPLIT_BRAIN = "split_brain"
    HUNG = "hung"
    EXHAUSTED = "exhausted"
    UNHEARD = "unheard"
    RESTARTING = "restarting"
    LOST_RETURN = "lost_return"
    NOT_STARTED = "not_started"
    IDLE_RUN = "idle_run"
    UNMADE_RUN = "unmade_run"


@dataclass(frozen=True, slots=True)
class KindRow:
    """
    Explain a kind, for people.

    :param sign: how it is recognised.
    :param action: what we do.
    :param alone: what Airflow 3.3 does by itself, measured with its defaults.
    """

    sign: str
    action: str
    alone: str


#: The table of ``docs/operations/recovery.md``; a test holds both together.
KINDS: dict[StallKind, KindRow] = {
    StallKind.DEAD_WORKER: KindRow(
        "the lease lapsed or its process is verified dead; Airflow says running",
        "set the task instance failed, clear it: no retry is burnt",
        "finds it after 300 s and burns a retry",
    ),
    StallKind.DEAD_PROCESS: KindRow(
        "the lease lapsed without an outcome; Airflow waits to retry",
        "clear it: no retry is burnt, no retry_delay is waited for",
        "retries after retry_delay; with retries=0 it fails and no callback runs",
    ),
    StallKind.SPLIT_BRAIN: KindRow(
        "the lease was superseded or lapsed, and its process lives on",
        "the process is ended by its guard; the task is recovered as a dead worker's",
        "never finds it: a second try runs beside it",
    ),
    StallKind.HUNG: KindRow(
        "the lease is renewed, and no step was recorded for 3 times the step's 95th percentile",
        "set the task instance failed, which ends the process, and clear it",
        "never finds it, unless execution_timeout is set",
    ),
    StallKind.EXHAUSTED: KindRow(
        "the last attempts left no outcome; Airflow says failed",
        "clear it, with what failed behind it",
        "the run has failed for good",
    ),
    StallKind.UNHEARD: KindRow(
        "the ledger says succeeded; Airflow says failed or to be retried, or running where its process is gone",
        "clear it: it replays and gives the recorded result",
        "runs all of it again, or leaves it failed",
    ),
    StallKind.RESTARTING: KindRow(
        "the lease lapsed; Airflow waits for its worker to end it",
        "set the task instance failed, clear it",
        "300 s, or never where the scheduler died as well",
    ),
    StallKind.LOST_RETURN: KindRow(
        "the ledger says paused; Airflow says failed, or waits to retry",
        "clear it: it goes on where it paused",
        "the run has failed for good",
    ),
    StallKind.NOT_STARTED: KindRow(
        "a task of ours is queued for longer than queued_after",
        "clear it, so that the scheduler queues it again; report it",
        "600 s or more, never with LocalExecutor",
    ),
    StallKind.IDLE_RUN: KindRow(
        "a run with unfinished tasks of ours has none that is queued, scheduled, running or waiting",
        "report it",
        "never finds it",
    ),
    StallKind.UNMADE_RUN: KindRow(
        "a submission was written down, and has no DAG run after ten seconds",
        "make the run: its id follows from the submission's key, so that there is one",
        "knows nothing of it",
    ),
}


@dataclass(frozen=True, slots=True)
class OpenWork:
    """
    Tell of the effects that an execution has begun and not ended.

    :param count: open intents.
    :param gone_in: seconds until the calls of all of them surely ended; 0 or less: they have.
    """

    count: int = 0
    gone_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Stall:
    """
    Hold what the ledger says of an execution that looks stalled.

    :param lease_left: seconds until its lease lapses, negative where it has; ``None``: there is no lease.
    :param idle: seconds since the last step was recorded; ``None``: there is no lease.
    :param step: that was in hand at the last heartbeat.
    :param step_timeout: seconds which that step may take by its own word.
    :param since: seconds since the state began.
    :param deaths: latest attempts in a row, this one included, that left no outcome.
    :param deaths_here: those of them since the last recorded step.
    :param place: where they died, for people.
    :param recoveries: requeues of this execution since a person's clear, or since it began.
    :param requeued_ago: seconds since the last of them.
    :param unheard: how many of them were of a success that Airflow had not heard of.
    :param marked: whether a requeue of this very fence was begun and not carried out.
    :param marks: the version of this fence's mark; 0: there is none. What ``mark`` compares.
    :param first_seen: seconds since a pass found it first; ``None``: this one does.
    :param max_recoveries: the task's own; ``None``: the deployment's.
    :param pause_reason: of a pause that the flow asked for; ``None``: it is none, or an operator's own deferral.
    :param basis: what it was found by: ``live`` (without progress), ``dead`` (its process, under a live lease),
        ``lapsed`` (or without a lease), ``paused``, ``unheard``.
    :param cut_off: whether its lease lapsed about when another server took over the ledger, so that it may be the
        renewal that was lost.
    """

    execution_pk: int
    execution: ExecutionId
    fence: int
    state: ExecutionState
    counters: Counters
    owner: Owner
    since: float
    lease_left: float | None = None
    idle: float | None = None
    step: str | None = None
    step_timeout: float | None = None
    deaths: int = 1
    deaths_here: int = 1
    place: str = ""
    recoveries: int = 0
    requeued_ago: float | None = None
    unheard: int = 0
    marked: bool = False
    marks: int = 0
    first_seen: float | None = None
    recovery: Recovery = "auto"
    max_recoveries: int | None = None
    open_work: OpenWork = field(default_factory=OpenWork)
    pause_reason: str | None = None
    basis: str = "lapsed"
    cut_off: bool = False

    @property
    def leased(self) -> bool:
        """Whether its lease is live."""
        return self.lease_left is not None and self.lease_left > 0


@dataclass(frozen=True, slots=True)
class Seen:
    """
    Hold what Airflow says of a task instance, read just before.

    :param ti_id: its id; ``None``: Airflow knows no such task instance, or its DAG or run is gone.
    :param state: Airflow's word; ``None``: not scheduled yet.
    :param age: seconds in this state, as far as Airflow tells.
    :param run_state: of the DAG run, where the task instance waits to be scheduled.
    :param dag_paused: whether the DAG is paused.
    :param person: who set its state or that of its run by hand since this attempt began, and how; ``None``: nobody.
    :param unsigned: whether it has failed, and Airflow's log knows its start and not who failed it: so it is after a
        change of many task instances at once, which alone leaves no entry.
    """

    ti_id: UUID | None
    state: str | None = None
    try_number: int = 0
    age: float = 0.0
    run_state: str | None = None
    dag_paused: bool = False
    person: str | None = None
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """
    Tell how long a task and one of its steps took before.

    :param task_p50: median seconds of the task's first attempts that succeeded; ``None``: too few.
    :param step_p95: 95th percentile of the step, in seconds; ``None``: too few.
    """

    task_p50: float | None = None
    step_p95: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """
    Hold all that one decision is made on.

    :param verified_dead: whether its process is known to be gone; ``None``: can't be told from here.
    """

    stall: Stall
    seen: Seen
    history: History = field(default_factory=History)
    verified_dead: bool | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """
    Do nothing now.

    :param why: for people.
    :param check_in: seconds after which to look again.
    :param report: whether somebody should hear of it.
    :param final: whether no attempt will come: its open effects are put in doubt, so that the inbox shows them.
    """

    why: str
    check_in: float = 30.0
    report: bool = False
    final: bool = False
    kind: StallKind | None = None


@dataclass(frozen=True, slots=True)
class Requeue:
    """
    Make the task runnable again.

    :param force: whether Airflow holds it for running, so that its state is set first.
    :param report: whether somebody should hear of it.
    """

    kind: StallKind
    why: str
    force: bool = False
    report: bool = False


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Fail the task for good, with its reason, and tell somebody."""

    kind: StallKind
    why: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Note that Airflow has heard of the success."""

    why: str


Decision = Leave | Requeue | Quarantine | Settle


@dataclass(frozen=True, slots=True)
class Pulse:
    """
    Tell how recovery went of late, over all executions.

    :param requeued: attempts that it started within the window and whose end is known, or that run for a while.
    :param died_again: those of them that left no outcome.
    :param last_minute: requeues within the last minute.
    :param probe_ago: seconds since the last requeue of any; ``None``: none within the window.
    """

    requeued: int = 0
    died_again: int = 0
    last_minute: int = 0
    probe_ago: float | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """
    Hold what recovery found and did about one fence of one execution: one alert is about one of these.

    :param number: of the row.
    :param decision: ``leave``, ``requeue``, ``quarantine`` or ``settle``.
    :param detected_after: seconds from the lapse of the lease, or the beginning of the state, to the first find.
    :param alerted: whether it was told already.
    """

    number: int
    execution: ExecutionId
    fence: int
    kind: StallKind
    decision: str
    why: str
    detected_after: float
    alerted: bool = False
