"""What the guard does beside an attempt, with real processes, real signals and a real ledger."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.async_flow import AsyncFlow, run_async
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.guard import DUMP_SIGNAL, GuardPlan
from airflow_aiflow.runtime.guard_process import Guard
from airflow_aiflow.runtime.left_over import MARKER
from airflow_aiflow.runtime.living import look
from airflow_aiflow.runtime.process import PR_SET_PDEATHSIG
from airflow_aiflow.runtime.vitals import PAGE_BYTES
from airflow_aiflow.storage.migrate import upgrade
from tests.crash import child
from tests.crash.guarded import (
    CLOCK,
    HANDED_BACK,
    Guarded,
    guard_of,
    guards_of,
    hold_the_interpreter,
    is_gone,
    leave_processes,
    until,
)
from tests.crash.life import DONE, Process

#: Where a guard must do it by itself: no lease of this length lapses within a test.
LONG = LeaseRules(ttl=60.0, interval=1.0)


@pytest.fixture
def guarded(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Guarded]:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    guarded = Guarded(tmp_path, dsn)
    yield guarded
    for pid in left(guarded):
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)


def left(guarded: Guarded) -> list[int]:
    """Give the processes that a body has started."""
    return [int(line) for line in guarded.outside("left")]


def leave_and_wait(_flow: Flow) -> None:
    """Start processes and wait for ever."""
    for pid in leave_processes():
        child.seen("left", str(pid))
    signal.pause()


@contextmanager
def running(process: Process) -> Iterator[Process]:
    try:
        yield process
    finally:
        process.kill()


def reached(guarded: Guarded, name: str) -> None:
    until(lambda: bool(guarded.outside(name)))


def held_throughout(guarded: Guarded, process: Process) -> tuple[bool, set[float]]:
    """Look at the lease until the process has ended: whether it was always live, and the progress that was seen."""
    live, progress = True, set()

    def look() -> bool:
        nonlocal live
        row = guarded.lease_row()
        if row is not None:
            live = live and row[0]
            progress.add(row[1])
        return process.poll()

    until(look)
    return live, progress


def test_a_call_that_holds_the_interpreter_keeps_its_lease_and_shows_no_progress(guarded: Guarded) -> None:
    """C36: without a guard the lease lapses in the middle, and a healthy task is given up."""
    guarded.body = lambda flow: flow.step("native", hold_the_interpreter, 5)
    with running(guarded.start()) as process:
        reached(guarded, "holding")
        live, progress = held_throughout(guarded, process)
    assert process.code == DONE, guarded.log()
    assert live
    assert len(progress) <= 2  # where the step began, and where it ended
    assert guarded.state() == "succeeded"
    assert "its guard keeps the lease" in guarded.log()


def test_an_async_task_that_computes_for_longer_than_its_lease_keeps_it(guarded: Guarded) -> None:
    def compute() -> int:
        child.seen("holding", "loop")
        over, turns = CLOCK.monotonic() + 2.5, 0
        while CLOCK.monotonic() < over:
            turns += 1
        return turns > 0

    async def step() -> int:
        return compute()

    async def body(flow: AsyncFlow) -> int:
        return await flow.step("loop", step)

    guarded.body = lambda _flow: run_async(body)
    guarded.lease = LeaseRules(ttl=1.6, interval=0.4)
    with running(guarded.start()) as process:
        reached(guarded, "holding")
        live, _ = held_throughout(guarded, process)
    assert process.code == DONE, guarded.log()
    assert live


def test_a_stopped_process_does_not_keep_its_lease(guarded: Guarded) -> None:
    guarded.body = lambda flow: flow.step("native", hold_the_interpreter, 3)
    with running(guarded.start()) as process:
        reached(guarded, "holding")
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: not guarded.live())
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait() == DONE, guarded.log()
    assert guarded.state() == "succeeded"


@pytest.mark.parametrize("leads", [True, False])
def test_what_a_killed_task_leaves_is_ended_and_its_lease_lapses(guarded: Guarded, leads: bool) -> None:
    guarded.body, guarded.lease, guarded.leads = leave_and_wait, LONG, leads
    guarded.plan = GuardPlan(guarded.dsn, settle=0.3)
    with running(guarded.start()) as process:
        until(lambda: len(left(guarded)) == 3)
        guard = guard_of(process.pid)
        *marked, forked = left(guarded)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: all(is_gone(pid) for pid in marked))
        until(lambda: not guarded.live())
        until(lambda: is_gone(guard))
        # A forked child without a new program shows no marker: only the group tells whose it is.
        assert is_gone(forked) is leads
    assert "ended what it left" in guarded.log()


def outlive_its_parent(_flow: Flow) -> None:
    """Take the wish to die with the parent back, as a change of user does by itself, and wait for ever."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
    child.seen("outlives", str(os.getpid()))
    signal.pause()


def test_an_orphan_that_the_kernel_did_not_end_is_ended(guarded: Guarded) -> None:
    guarded.body, guarded.lease = outlive_its_parent, LeaseRules(ttl=6.0, interval=2.0)
    supervisor = os.fork()
    if supervisor == 0:
        guarded.start()
        signal.pause()
    try:
        reached(guarded, "outlives")
        pid = int(guarded.outside("outlives")[0])
        assert not is_gone(pid)
    finally:
        os.kill(supervisor, signal.SIGKILL)
        os.waitpid(supervisor, 0)
    until(lambda: is_gone(pid))
    assert "supervisor is dead" in guarded.log()


def die_in_a_step(flow: Flow) -> None:
    """Kill this process in a step that no heartbeat has named."""

    def deadly() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    flow.step("deadly", deadly)


def test_a_step_that_kills_its_process_at_once_is_named(guarded: Guarded) -> None:
    guarded.body, guarded.lease = die_in_a_step, LONG
    guarded.plan = GuardPlan(guarded.dsn, settle=0.3)
    with running(guarded.start()) as process:
        process.wait()
        until(lambda: not guarded.live())
    assert guarded.step_in_hand() == "deadly"


def test_with_the_supervisor_die_the_task_its_subprocesses_and_the_guard(guarded: Guarded) -> None:
    guarded.body, guarded.leads = leave_and_wait, True
    supervisor, task = guarded.start_supervised()
    with running(supervisor):
        until(lambda: len(left(guarded)) == 3)
        those = [task, *left(guarded), guard_of(task)]
        supervisor.kill()
        until(lambda: all(is_gone(pid) for pid in those))


def test_somebody_elses_processes_are_left_alone(guarded: Guarded) -> None:
    """Another attempt's marker has another value, and the processes around have none."""
    other = os.posix_spawn("/bin/sleep", ["sleep", "600"], {MARKER: "0" * 32})
    bystander = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    try:
        guarded.body = lambda flow: flow.step("native", hold_the_interpreter, 60)
        with running(guarded.start()) as process:
            reached(guarded, "holding")
            guard = guard_of(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            until(lambda: is_gone(guard))
        assert not is_gone(other)
        assert not is_gone(bystander)
    finally:
        for pid in (other, bystander):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_guard_ends_with_its_attempt_and_leaves_what_the_author_started(guarded: Guarded) -> None:
    def body(flow: Flow) -> None:
        for pid in leave_processes():
            child.seen("left", str(pid))
        child.seen("guard", str(guard_of(os.getpid())))

    guarded.body = body
    with running(guarded.start()) as process:
        assert process.wait() == DONE, guarded.log()
        assert is_gone(int(guarded.outside("guard")[0]))
        assert not any(is_gone(pid) for pid in left(guarded))
    assert guarded.lease_row() is None
    assert guarded.state() == "succeeded"


def test_a_superseded_process_that_cannot_see_it_is_stopped_and_ended(guarded: Guarded) -> None:
    """Split brain: its own watchdog does not get to run, and it would go on beside the next try."""
    guarded.body = lambda flow: flow.step("native", hold_the_interpreter, 60)
    guarded.plan = GuardPlan(guarded.dsn, record=0.5, verdict=0.5)
    with running(guarded.start()) as first:
        reached(guarded, "holding")
        guarded.retried()
        guarded.body = lambda flow: flow.step("quick", str, "done")
        with running(guarded.start()) as second:
            assert second.wait() == DONE, guarded.log()
        assert first.wait() == -signal.SIGKILL
    assert "a later attempt of this task took over" in guarded.log()
    assert guarded.state() == "succeeded"


def test_a_call_over_its_timeout_that_holds_the_interpreter_is_ended_with_its_stacks_in_the_log(
    guarded: Guarded,
) -> None:
    guarded.body = lambda flow: flow.step("native", hold_the_interpreter, 60, timeout=0.5)
    guarded.plan = GuardPlan(guarded.dsn, hang=1.0, record=0.5)
    with running(guarded.start()) as process:
        assert process.wait() == -DUMP_SIGNAL, guarded.log()
    log = guarded.log()
    assert re.search(r"a call is \d s over its timeout and holds the interpreter", log)
    assert "in hold_the_interpreter" in log
    assert guarded.state() == "running"  # a death, which recovery finds


def test_a_call_that_returns_just_before_its_end_goes_on() -> None:
    """Never between a call and its record: the stopped process is looked at once more."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            seen = look(process.pid)
            assert seen is not None
            page = memoryview(bytearray(PAGE_BYTES)).cast("d")
            plan = {"pid": process.pid, "start": seen.start, "ttl": 3.0, "interval": 1.0}
            guard = Guard(plan, page, 0)
            looked: list[str] = []

            def still() -> bool:
                now = look(process.pid)
                looked.append(now.state if now is not None else "gone")
                return False

            assert not guard._freeze(still)
            assert looked == ["T"]
            until(lambda: (now := look(process.pid)) is not None and now.state == "S")
        finally:
            process.kill()


def swallowing(call: Callable[[], object]) -> None:
    """Never end, whatever is raised."""
    while True:
        try:
            call()
        except BaseException:
            child.seen("swallowed", "once")


def test_a_call_that_swallows_its_deadline_is_handed_back_with_all_stacks(guarded: Guarded) -> None:
    def stubborn() -> None:
        swallowing(lambda: CLOCK.wait(60.0))

    guarded.body = lambda flow: flow.step("stubborn", stubborn, timeout=0.3)
    guarded.grace = 0.5
    with running(guarded.start()) as process:
        assert process.wait() == HANDED_BACK, guarded.log()
    assert guarded.outside("swallowed")
    assert "in stubborn" in guarded.log()
    assert "Thread aiflow-heartbeat" in guarded.log()
    assert guarded.outside("ended") == ["step 'stubborn' did not end within 0.3 s; comes back in 30.0"]
    assert guarded.state() == "paused"
    assert guarded.lease_row() is None


def test_what_else_is_in_hand_is_recorded_before_a_hanging_attempt_is_ended(guarded: Guarded) -> None:
    """Never between a call and its record: one item of a map hangs, the other one is paid for and gets its record."""

    def item(which: str) -> str:
        child.seen("begun", which)
        if which == "hangs":
            swallowing(lambda: CLOCK.wait(60.0))
        if which == "first":
            CLOCK.wait(1.0)
        else:  # begun later, it ends when the hanging one is overrun, and nothing new starts
            assert CLOCK.wait(30.0, until=lambda: "nothing new starts" in (child.OUTSIDE / "log").read_text())
        return which

    guarded.body = lambda flow: flow.map("items", item, ["hangs", "first", "paid", "never"], max_workers=2)
    guarded.grace, guarded.step_timeout, guarded.settings = 0.2, 1.5, FlowSettings(handover=20.0)
    with running(guarded.start()) as process:
        assert process.wait() == HANDED_BACK, guarded.log()
    assert guarded.state() == "paused"
    guarded.body = lambda flow: flow.map("items", item, ["first", "paid"])
    with running(guarded.start()) as process:
        assert process.wait() == DONE, guarded.log()
    assert sorted(guarded.outside("begun")) == ["first", "hangs", "paid"]


def test_a_guard_costs_little_and_shows_no_secret(guarded: Guarded) -> None:
    guarded.dsn += "&application_name=secret-word" if "?" in guarded.dsn else "?application_name=secret-word"
    guarded.plan = GuardPlan(guarded.dsn)
    assert "secret-word" not in repr(guarded.plan)
    guarded.body = lambda flow: signal.pause()
    with running(guarded.start()) as process:
        guard = guard_of(process.pid)
        proc = Path(f"/proc/{guard}")
        until(lambda: "memfd:aiflow-vitals" in (proc / "maps").read_text())
        assert b"secret-word" not in (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
        assert MARKER.encode() not in (proc / "environ").read_bytes()
        assert "psycopg" not in (proc / "maps").read_text()
        [resident] = re.findall(r"VmRSS:\s+(\d+) kB", (proc / "status").read_text())
        assert int(resident) < 20_000
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        assert (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") < 0.3
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: is_gone(guard))


def test_a_forked_child_of_the_task_leaves_the_guard_alone(guarded: Guarded) -> None:
    def body(flow: Flow) -> None:
        forked = os.fork()
        if forked == 0:
            flow._session.heartbeat.stop()
            os._exit(0)
        os.waitpid(forked, 0)
        assert guards_of(os.getpid())

    guarded.body = body
    with running(guarded.start()) as process:
        assert process.wait() == DONE, guarded.log()
