"""Attempts with a guard beside them, in forked processes: what the tests of the guard kill, stop and look at."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from airflow_aiflow.durable.attempt import Attempt, Counters
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptParked, AttemptSuperseded
from airflow_aiflow.runtime import deadline
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.guard import GuardPlan
from airflow_aiflow.runtime.living import look
from airflow_aiflow.runtime.process import die_with_parent, this_owner
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing.task import RUN_AFTER, uuid7
from tests.crash import child
from tests.crash.life import DONE, FAILED, LONGEST, PARKED, SUPERSEDED, Process

#: Short enough for a test, long enough for a busy machine: the guard beats at half of it.
QUICK = LeaseRules(ttl=3.0, interval=0.75)

#: How a process ends whose host was to hand it back.
HANDED_BACK = 9

CLOCK = SystemClock()


class Host(child.DyingHost):
    """End the process for real, and say how the task comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.may_come_back = True

    def log(self, line: str, *, warning: bool = False) -> None:
        """Write it where the process writes."""
        print(line, flush=True)

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> None:
        """Leave a line and go."""
        child.seen("ended", f"{why}; comes back in {back_in}")
        os._exit(SUPERSEDED if superseded else HANDED_BACK if back_in is not None else FAILED)


@dataclass
class Guarded:
    """
    Make the attempts of one execution.

    :param folder: where lines are left, and the log.
    :param dsn: of the ledger.
    """

    folder: Path
    dsn: str
    body: Callable[[Flow], Any] = lambda _flow: None
    lease: LeaseRules = QUICK
    plan: GuardPlan | None = None
    settings: FlowSettings = field(default_factory=lambda: FlowSettings(handover=1.0, ledger_patience=5.0))
    #: Seconds of grace that an overrun call gets; ``None``: the real ones.
    grace: float | None = None
    #: Whether the task process leads a process group, as Airflow makes it.
    leads: bool = False
    step_timeout: float | None = None
    counters: Counters = field(
        default_factory=lambda: Counters(
            ti_id=uuid7(), try_number=1, max_tries=9, retries=9, clear_number=0, run_after=RUN_AFTER
        )
    )

    def __post_init__(self) -> None:
        self.plan = self.plan or GuardPlan(self.dsn)

    def retried(self) -> None:
        """Make the next attempt an automatic retry."""
        self.counters = dataclasses.replace(self.counters, ti_id=uuid7(), try_number=self.counters.try_number + 1)

    def start(self) -> Process:
        """Start the attempt that is next."""
        pid = os.fork()
        if pid == 0:
            self._be_attempt()
        return Process(pid, None)

    def start_supervised(self) -> tuple[Process, int]:
        """Start it under a supervisor that does nothing; give that, and the task's pid."""
        pid = os.fork()
        if pid == 0:
            task = os.fork()
            if task == 0:
                self._be_attempt()
            (self.folder / "task").write_text(str(task))
            os.waitpid(task, 0)
            os._exit(0)
        supervisor = Process(pid, None)
        until(lambda: (self.folder / "task").exists() and bool((self.folder / "task").read_text()))
        return supervisor, int((self.folder / "task").read_text())

    def outside(self, what: str) -> list[str]:
        """Read what was left."""
        path = self.folder / what
        return path.read_text().splitlines() if path.exists() else []

    def log(self) -> str:
        """Read what the process wrote."""
        return "\n".join(self.outside("log"))

    def lease_row(self) -> tuple[bool, float] | None:
        """Tell whether the lease is live, and when the last progress was; ``None``: there is none."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(
                "select expires_at > clock_timestamp(), extract(epoch from progress_at)::float8 from aiflow.lease"
            ).fetchone()
        return None if row is None else (row[0], row[1])

    def live(self) -> bool:
        """Say whether the lease is live."""
        row = self.lease_row()
        return row is not None and row[0]

    def step_in_hand(self) -> str | None:
        """Give the step that the lease names."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("select step_name from aiflow.lease").fetchone()
        return None if row is None else row[0]

    def state(self) -> str:
        """Give the execution's state in the ledger."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("select state::text from aiflow.execution").fetchone()
        return str(row[0]) if row else ""

    # --- in the attempt's own process ---

    def _be_attempt(self) -> NoReturn:
        code = FAILED
        try:
            die_with_parent()
            if self.leads:
                os.setpgid(0, 0)
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
            child.OUTSIDE = self.folder
            if self.grace is not None:
                deadline.OVERRUN_GRACE = self.grace
            code = self._attempt()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _attempt(self) -> int:
        ledger, host, store = PostgresLedger.connect(self.dsn), Host(), MemoryArtifactStore()
        attempt = Attempt(
            execution=ExecutionId("guarded", "manual__1", "pipeline", -1),
            counters=self.counters,
            owner=this_owner(str(self.counters.ti_id)),
        )
        services = Services(
            ledger=ledger, store=lambda: store, host=host, settings=self.settings, clock=CLOCK, guard=self.plan
        )
        try:
            result = run_attempt(attempt, services, self.body, lease=self.lease, step_timeout=self.step_timeout)
        except AttemptSuperseded:
            return SUPERSEDED
        except AttemptParked as parked:
            print(parked)
            return PARKED
        child.seen("results", repr(result))
        return DONE


def until(condition: Callable[[], bool], seconds: float = LONGEST) -> None:
    """Wait for a condition."""
    if not CLOCK.wait(seconds, until=condition):
        raise TimeoutError("waited in vain")


def guards_of(task: int) -> list[int]:
    """Find the guards of a task process, by its pid, while it lives."""
    path = Path(f"/proc/{task}/task/{task}/children")
    return [int(pid) for pid in path.read_text().split() if b"guard_process" in _cmdline(int(pid))]


def guard_of(task: int) -> int:
    """Wait for the guard of a task process."""
    until(lambda: bool(guards_of(task)))
    [guard] = guards_of(task)
    return guard


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_gone(pid: int) -> bool:
    """Say whether a process is dead."""
    return look(pid) is None


def hold_the_interpreter(seconds: int) -> None:
    """Sleep in C, with the interpreter held: no other thread of this process runs meanwhile."""
    import ctypes

    child.seen("holding", str(seconds))
    ctypes.PyDLL(None).sleep(seconds)


def leave_processes() -> list[int]:
    """Start a subprocess in a session of its own with one below it, and a forked child; give their pids."""
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    assert shell.stdout is not None
    below = int(shell.stdout.readline())
    forked = os.fork()
    if forked == 0:
        signal.pause()
        os._exit(0)
    return [shell.pid, below, forked]
