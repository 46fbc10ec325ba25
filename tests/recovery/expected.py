"""
What must be seen in each case. Written down before anything was measured; a case that breaks it is a finding.

``requeues``, ``attempts`` and ``calls`` may be a span where the winner of a race may differ; effects never are.
Counts, kinds and states are judged. Seconds hang on the machine: what is measured is shown, beside the aim where there
is one, and what takes longer than it usually does is named as late; wrong is only what takes many times as long, or
never comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Span = int | tuple[int, int]

#: How many times the usual seconds something may take before it is wrong: what the slowest machine took that was busy
#: with other tests was four times.
SLACK = 8.0

#: A stack with `lease_ttl` 6 s and `heartbeat_interval` 2 s; one with every default; one whose tasks set their clock.
Setting = Literal["short", "default", "clocks"]


@dataclass(frozen=True)
class Must:
    """
    Say what must be seen of a run.

    :param requeues: that Airflow took.
    :param effects: records that the service created.
    :param calls: model calls that were billed.
    :param attempts: take-overs, as the ledger numbers them.
    :param state: of the DAG run at the end.
    :param kind: that a find must name; ``None``: nothing may be requeued.
    :param detect: usual seconds from the hit to the first find, at most; ``None``: it need not be found.
    :param go_on: usual seconds from the hit until the next attempt is at the same place, at most.
    """

    requeues: Span = 1
    effects: int = 1
    calls: Span = 2
    attempts: Span = 2
    state: str = "success"
    kind: str | None = None
    detect: float | None = None
    go_on: float | None = None


@dataclass(frozen=True)
class Seen:
    """
    Hold what was seen.

    :param requeues: that Airflow took.
    :param kinds: that finds named, each once.
    :param detect: seconds from the hit to the first find.
    :param go_on: seconds from the hit until the next attempt was at the same place.
    :param wrong: what else must not be.
    :param noticed: without recovery, seconds from the hit until Airflow ended the task instance by itself.
    """

    requeues: int
    effects: int
    calls: int
    attempts: int
    state: str
    kinds: tuple[str, ...] = ()
    detect: float | None = None
    go_on: float | None = None
    wrong: tuple[str, ...] = ()
    noticed: float | None = None


@dataclass(frozen=True)
class Case:
    """
    Be one row of the report.

    :param key: names it, and the function in ``situations`` that plays it.
    :param what: for people.
    :param alone: what Airflow does by itself, measured before with its defaults.
    :param setting: of the stack it is played in.
    :param times: how often; the median of the seconds counts.
    :param aim: seconds below which that median is meant to be until it goes on; shown, and never judged.
    :param quick: whether it is in ``make test``.
    :param measurable: whether ``--alone`` plays it without recovery.
    """

    key: str
    what: str
    must: Must
    alone: str
    setting: Setting = "short"
    times: int = 1
    aim: float | None = None
    quick: bool = False
    measurable: bool = False
    handed: tuple[str, ...] = field(default=())


def within(seen: int, wanted: Span) -> bool:
    """Say whether a count is what it must be."""
    least, most = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    return least <= seen <= most


def complaints(case: Case, seen: Seen, *, slack: float = SLACK) -> list[str]:
    """
    Compare.

    :param case: with what must be.
    :param seen: what was.
    :param slack: how many times the usual seconds it may take.
    """
    must, found = case.must, list(seen.wrong)
    for name in ("requeues", "effects", "calls", "attempts"):
        if not within(getattr(seen, name), getattr(must, name)):
            found.append(f"{name} {getattr(seen, name)}, must be {getattr(must, name)}")
    if seen.state != must.state:
        found.append(f"the run is {seen.state}, must be {must.state}")
    if must.kind is not None and must.kind not in seen.kinds:
        found.append(f"found as {', '.join(seen.kinds) or 'nothing'}, must be {must.kind}")
    for name in ("detect", "go_on"):
        most, took = getattr(must, name), getattr(seen, name)
        if most is not None and (took is None or took > slack * most):
            found.append(f"{name} {'never' if took is None else f'{took:.1f} s'}, must be within {slack * most:g} s")
    return [f"{case.key}: {each}" for each in found]


def late(case: Case, seen: Seen) -> list[str]:
    """
    Name what took longer than it usually does, which is no fault by itself.

    :param case: with the usual seconds.
    :param seen: what was.
    """
    pairs = [(name, getattr(case.must, name), getattr(seen, name)) for name in ("detect", "go_on")]
    return [
        f"{case.key}: {name} {took:.1f} s, usually within {most:g} s"
        for name, most, took in pairs
        if most is not None and took is not None and took > most
    ]


def _dead(kind: str) -> Must:
    """Be found by the lapse of a lease of 6 s, or sooner by the death of its process."""
    return Must(kind=kind, detect=12.0, go_on=20.0)


CASES: tuple[Case, ...] = (
    Case(
        "task_killed",
        "kill -9 of the task process, retries=0",
        _dead("exhausted"),
        "0.1 s: the run has failed for good, no callback",
        quick=True,
        measurable=True,
    ),
    Case(
        "task_killed_retries",
        "kill -9 of the task process, retries=2, in mid call of the effect",
        _dead("dead_process"),
        "0.5 s, then retry_delay; a retry is burnt",
        measurable=True,
        handed=("C09",),
    ),
    Case(
        "supervisor_killed",
        "kill -9 of the supervisor alone",
        _dead("dead_worker"),
        "310 s, the orphan goes on beside try 2",
        measurable=True,
    ),
    Case(
        "worker_killed",
        "kill -9 of supervisor and task, retries=0",
        Must(kind="dead_worker", detect=10.0, go_on=15.0),
        "310 s, then failed for good",
        times=3,
        aim=15.0,
        quick=True,
        measurable=True,
    ),
    Case(
        "worker_killed_default",
        "the same, every setting at its default",
        Must(kind="dead_worker", detect=40.0, go_on=45.0),
        "310 s, then failed for good",
        setting="default",
        times=3,
        aim=45.0,
    ),
    Case(
        "children_end",
        "supervisor and task killed: what the step had started ends too",
        _dead("dead_worker"),
        "never",
    ),
    Case(
        "orphan",
        "kill -9 of the supervisor; its task does not die with it",
        Must(detect=30.0, go_on=40.0),
        "310 s, the orphan goes on beside try 2",
    ),
    Case(
        "scheduler_killed",
        "kill -9 of the scheduler tree; a new one comes",
        Must(kind="dead_worker", detect=15.0, go_on=30.0),
        "31.6 s with time-outs shortened to 30 s, 300 s and more by default",
        measurable=True,
    ),
    Case(
        "stopped",
        "SIGSTOP of the task process",
        Must(detect=15.0, go_on=100.0),
        "never",
        measurable=True,
    ),
    Case(
        "hung",
        "a hung HTTP call, stall_floor 25 s",
        Must(kind="hung", detect=40.0, go_on=55.0),
        "never, unless execution_timeout",
        measurable=True,
    ),
    Case(
        "gil_held",
        "a C call that holds the GIL for three leases",
        Must(requeues=0, attempts=1),
        "nothing to find",
        handed=("C36",),
    ),
    Case(
        "loop_blocked",
        "an async step that blocks its loop for three leases",
        Must(requeues=0, attempts=1),
        "nothing to find",
        handed=("C36",),
    ),
    Case(
        "deadly_step",
        "a step that SIGKILLs its process each time",
        Must(requeues=2, effects=0, calls=1, attempts=3, state="failed"),
        "failed, or every retry burnt",
        handed=("C40",),
    ),
    Case(
        "unheard_failed",
        "killed between the ledger's success and Airflow's",
        Must(kind="unheard", attempts=2, detect=75.0, go_on=80.0),
        "0.1 s: failed for good",
    ),
    Case(
        "unheard_running",
        "the same, with its supervisor: Airflow says running",
        Must(kind="unheard", attempts=2, detect=75.0, go_on=80.0),
        "310 s, then failed for good",
    ),
    Case(
        "lost_return",
        "paused, and killed before Airflow heard of it",
        Must(kind="lost_return", detect=75.0, go_on=80.0, attempts=2),
        "0.1 s: failed for good",
    ),
    Case(
        "restarting",
        "cleared while running, then worker and scheduler killed",
        Must(requeues=(0, 1), attempts=2, go_on=60.0),
        "300 s, or never where its run is not running",
        handed=("C09",),
    ),
    Case(
        "person_fails",
        "a person marks it failed while it runs",
        Must(requeues=0, effects=0, calls=1, attempts=1, state="failed"),
        "failed, as wished",
        quick=True,
    ),
    Case(
        "person_fails_many",
        "the same by a change of many at once, of which Airflow keeps no entry",
        Must(requeues=0, effects=0, calls=1, attempts=1, state="failed"),
        "failed, as wished",
        quick=True,
    ),
    Case(
        "person_races",
        "a person's clear, the sensor and the retry timer within one second",
        Must(requeues=(0, 1), attempts=(2, 3)),
        "-",
        times=3,
    ),
    Case(
        "paused_dag",
        "killed while its DAG is paused: reported, not requeued",
        Must(requeues=0, effects=0, calls=1, attempts=1, state="failed", kind="exhausted", detect=15.0),
        "0.1 s: failed for good",
    ),
    Case(
        "recovery_killed",
        "the recovery DAG's own task is killed in its pass",
        Must(kind="dead_worker", detect=60.0, go_on=90.0),
        "-",
        handed=("I07",),
    ),
    Case(
        "two_recoveries",
        "two recovery DAGs, three runs lost at once",
        Must(requeues=3, effects=3, calls=0, attempts=2, kind="dead_worker"),
        "purged twice by two schedulers",
        handed=("C05", "C06", "I07"),
    ),
    Case(
        "api_away",
        "the API server is away for 60 s, and a worker dies meanwhile",
        # It takes up to twenty seconds more to start; nothing can be decided before.
        Must(detect=110.0, go_on=150.0),
        "310 s, then failed for good",
    ),
    Case(
        "crowd",
        "250 stalled at once, PostgreSQL restarted while they are requeued",
        Must(requeues=250, effects=250, calls=0, attempts=2),
        "-",
        handed=("C34",),
    ),
    Case(
        "not_started",
        "queued, and lost on the way to a worker",
        Must(requeues=(0, 1), effects=1, calls=0, attempts=1, kind="not_started", detect=100.0, go_on=120.0),
        "never with LocalExecutor",
    ),
    Case(
        "idle_run",
        "a run that waits for ever: nothing of it is queued or running",
        Must(requeues=0, effects=0, calls=0, attempts=1, state="running", kind="idle_run"),
        "never",
    ),
    Case(
        "clock_ahead",
        "the task's clock ten minutes ahead of the database's",
        _dead("dead_worker"),
        "-",
        setting="clocks",
        handed=("C39",),
    ),
    Case(
        "clock_behind",
        "the task's clock ten minutes behind the database's",
        _dead("dead_worker"),
        "-",
        setting="clocks",
        handed=("C39",),
    ),
)
