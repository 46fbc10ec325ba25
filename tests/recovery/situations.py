"""How each case is played. A function of the case's key; what it must give stands in ``expected``."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psutil

from airflow_aiflow.local.airflow_client import AirflowApiError, wait_for
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.runtime.process import start_time
from tests.recovery.crowd import crowd, set_pool
from tests.recovery.expected import Seen
from tests.recovery.recovery_file import SECOND
from tests.recovery.world import PATIENCE, RECOVERY, Run, World, gone, never_answering, patiently

#: Seconds for which it is watched that nothing happens: two passes and more.
STAYS = 15.0
#: Seconds for which the API server is away.
AWAY = 60.0
#: Seconds for what recovery looks at seldom: every minute, and every five.
SELDOM = 420.0
#: Without recovery, Airflow's own time-outs.
ALONE = 420.0

Play = Callable[[World], Seen]


def measured(run: Run, go_on: float | None = None, *wrong: str) -> Seen:
    """
    Count what the outside saw of a run.

    :param run: that has ended.
    :param go_on: seconds from the hit until the next attempt was at the same place.
    :param wrong: what else must not be.
    """
    world = run.world
    found = world.found_at(run) if world.recovery and run.hit_at else None
    return Seen(
        requeues=world.requeues(run) if world.recovery else 0,
        effects=world.effects(run),
        calls=world.calls(run),
        attempts=world.attempts(run),
        state=run.state() or "unknown",
        kinds=tuple(dict.fromkeys(kind for kind, _, _ in world.incidents(run))) if world.recovery else (),
        detect=None if found is None else found - run.hit_at,
        go_on=go_on,
        wrong=(*run.notes, *wrong),
        noticed=None if world.recovery or not run.hit_at else run.ended_after(),
    )


def again(run: Run, start: str = "step ", number: int = 2) -> float | None:
    """
    Wait until the next attempt is at the same place.

    :return: seconds since the hit; ``None``: it never came there.
    """
    try:
        run.line(start, number, PATIENCE if run.world.recovery else ALONE)
    except Exception:
        return None
    return time.time() - run.hit_at


def stays(look: Callable[[], object], what: str, seconds: float = STAYS) -> list[str]:
    """
    Watch that something stays as it is.

    :return: what became of it, where it did not.
    """
    before, end = look(), time.monotonic() + seconds
    while time.monotonic() < end:
        if (now := look()) != before:
            return [f"{what} went from {before} to {now}"]
        threading.Event().wait(0.5)
    return []


def _recovered(run: Run, *wrong: str) -> Seen:
    """Let the next attempt go on, and count at the end."""
    run.go()
    took = again(run)
    if took is not None:
        run.succeeds()
    return measured(run, took, *wrong)


def task_killed(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, _ = run.at_risk()
    run.hit(pid)
    return _recovered(run)


def task_killed_retries(world: World) -> Seen:
    run = world.run("stalls_2", "none")
    world.stack.records.set_faults(Fault("delay", seconds=60, first=1, contains=run.token))
    pid, _ = run.at_risk()
    wait_for(lambda: world.effects(run) or None, "the call of the effect", PATIENCE)
    run.hit(pid)
    took = again(run, "attempt ")
    run.succeeds()
    task = run.task()
    left = task["max_tries"] + 1 - task["try_number"]
    return measured(run, took, *([] if left == 2 else [f"{left} retries are left, must be 2"]))


def supervisor_killed(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, supervisor = run.at_risk()
    run.hit(supervisor)
    wait_for(gone(pid), "the end of the orphan", PATIENCE)
    return _recovered(run)


def worker_killed(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, supervisor = run.at_risk()
    run.hit(supervisor, pid)
    return _recovered(run)


def worker_killed_default(world: World) -> Seen:
    return worker_killed(world)


def children_end(world: World) -> Seen:
    run = world.run("stalls_0", "child")
    pid, supervisor = run.at_risk()
    child = int(run.line("child ")[1])
    run.hit(supervisor, pid)
    run.go()
    took = again(run)
    if start_time(child) is not None:
        run.notes.append("the subprocess of the killed task lives on")
        os.kill(child, signal.SIGKILL)
    run.succeeds()
    return measured(run, took)


def orphan(world: World) -> Seen:
    run = world.run("stalls_0", "orphan")
    pid, supervisor = run.at_risk()
    run.hit(supervisor)
    took = again(run)
    wrong = [] if start_time(pid) is None else ["the orphan lives on beside the next attempt"]
    run.go()
    run.succeeds()
    return measured(run, took, *wrong)


def scheduler_killed(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    run.at_risk()
    run.hit_at = time.time()
    world.kill_scheduler()
    return _recovered(run)


def stopped(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, _ = run.at_risk()
    run.hit(pid, by=signal.SIGSTOP)
    seen = _recovered(run)
    with contextlib.suppress(ProcessLookupError):
        if start_time(pid) is not None:
            os.kill(pid, signal.SIGKILL)
    return seen


def hung(world: World) -> Seen:
    with never_answering() as address:
        run = world.run("stalls_0", "http", address=address)
        pid, _ = run.at_risk()
        run.hit_at = time.time()
        took = again(run)
        wrong = [] if start_time(pid) is None else ["the hung process lives on beside the next attempt"]
        run.succeeds()
        return measured(run, took, *wrong)


def gil_held(world: World) -> Seen:
    run = world.run("stalls_0", "gil", seconds=18)
    run.at_risk()
    run.hit_at = time.time()
    run.succeeds()
    return measured(run)


def loop_blocked(world: World) -> Seen:
    run = world.run("stalls_async", "loop", seconds=18)
    run.at_risk()
    run.hit_at = time.time()
    run.succeeds()
    return measured(run)


def deadly_step(world: World) -> Seen:
    run = world.run("stalls_deadly", "die")
    run.at_risk()
    run.hit_at = time.time()

    def parked() -> bool | None:
        return any(decision == "quarantine" for _, decision, _ in world.incidents(run)) or None

    wait_for(parked, "the quarantine", PATIENCE)
    run.ended()
    wrong = stays(lambda: (world.requeues(run), run.count("step ")), "requeues and steps")
    wait_for(lambda: world.alerts(run) or None, "the alert", PATIENCE)
    if world.alerts(run) != 1:
        wrong.append(f"{world.alerts(run)} alerts")
    named = [why for _, decision, why in world.incidents(run) if decision == "quarantine" and "risky" in why]
    return measured(run, None, *wrong, *([] if named else ["the quarantine does not name the step"]))


def unheard_failed(world: World) -> Seen:
    run = world.run("stalls_0", "after_finish")
    pid = int(run.line("armed ")[1])
    wait_for(gone(pid), "the end of the process", PATIENCE)
    run.hit_at = time.time()
    took = again(run, "attempt ")
    run.succeeds()
    return measured(run, took, *_once_computed(run))


def unheard_running(world: World) -> Seen:
    run = world.run("stalls_0", "after_finish=stop")
    _, pid, supervisor = (int(word) if word.isdigit() else 0 for word in run.line("armed "))
    stopped_at = psutil.Process(pid)
    wait_for(lambda: stopped_at.status() == psutil.STATUS_STOPPED or None, "the stop after the record", PATIENCE)
    run.hit(supervisor, pid)
    took = again(run, "attempt ")
    run.succeeds()
    return measured(run, took, *_once_computed(run))


def _once_computed(run: Run) -> list[str]:
    steps = run.count("step ")
    return [] if steps == 1 else [f"the step was computed {steps} times"]


def lost_return(world: World) -> Seen:
    run = world.run("stalls_0", "nap")
    pid = int(run.line("attempt ")[3])
    wait_for(gone(pid), "the end of the process", PATIENCE)
    run.hit_at = time.time()
    took = again(run, "attempt ")
    run.succeeds()
    return measured(run, took, *_once_computed(run))


def restarting(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, supervisor = run.at_risk()
    # Else the supervisor might hear of the clear, and end the task, before it is killed.
    os.kill(supervisor, signal.SIGSTOP)
    world.client.clear(run.dag_id, run.run_id, run.task_id)
    state = run.task()["state"]
    run.hit(supervisor, pid)
    world.kill_scheduler()
    return _recovered(run, *([] if state == "restarting" else [f"the cleared task was {state}, not restarting"]))


def person_fails(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, _ = run.at_risk()
    run.hit_at = time.time()
    world.client.set_state(run.dag_id, run.run_id, run.task_id, "failed")
    wait_for(gone(pid), "the end of the process", PATIENCE)
    run.ended()
    return measured(run, None, *stays(lambda: (world.requeues(run), run.state()), "requeues and state"))


def person_fails_many(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, _ = run.at_risk()
    run.hit_at = time.time()
    update = {"action": "update", "entities": [{"task_id": run.task_id, "new_state": "failed"}]}
    path = f"/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
    world.client.request("PATCH", path, body={"actions": [update]})
    wait_for(gone(pid), "the end of the process", PATIENCE)
    run.ended()

    def left() -> bool | None:
        return any("among others" in why for why in world.left_alone(run)) or None

    wait_for(left, "a find that is left alone", PATIENCE)
    return measured(run, None, *stays(lambda: (world.requeues(run), run.state()), "requeues and state"))


#: Seconds after the kill at which the person clears: recovery acts after three or so, and so does the retry timer.
RACES = itertools.cycle((2.5, 3.2, 3.9))


def person_races(world: World) -> Seen:
    moment = next(RACES)
    run = world.run("stalls_race", "hold")
    pid, _ = run.at_risk()
    run.hit(pid)

    def due() -> bool | None:
        return time.time() - run.hit_at > moment or None

    wait_for(due, "the moment", PATIENCE)
    with contextlib.suppress(AirflowApiError):
        world.client.clear(run.dag_id, run.run_id, run.task_id)
    # Not before: a clear of what has succeeded meanwhile would be another case, a new generation.
    run.go()
    took = again(run)
    run.succeeds()
    wrong = stays(lambda: (run.state(), run.count("attempt ")), "state and attempts", 5)
    return measured(run, took, *wrong)


@contextmanager
def paused(world: World, dag_id: str) -> Iterator[None]:
    """Pause a DAG."""
    world.client.request("PATCH", f"/dags/{dag_id}", body={"is_paused": True})
    try:
        yield
    finally:
        world.client.request("PATCH", f"/dags/{dag_id}", body={"is_paused": False})


def paused_dag(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, _ = run.at_risk()
    with paused(world, run.dag_id):
        run.hit(pid)
        run.ended()

        def told() -> bool | None:
            return any("paused" in why for _, _, why in world.incidents(run)) or None

        wait_for(told, "a find that names the pause", PATIENCE)
        return measured(run, None, *stays(lambda: (world.requeues(run), run.state()), "requeues and state"))


def recovery_killed(world: World) -> Seen:
    run = world.run("stalls_0", "hold")
    pid, supervisor = run.at_risk()
    run.hit(supervisor, pid)
    killed = wait_for(lambda: _kill_recovery(world), "a process of the recovery DAG", PATIENCE)
    return _recovered(run, *([] if killed else ["no process of the recovery DAG was killed"]))


def _kill_recovery(world: World) -> bool | None:
    """Kill the recovery DAG's task where it has a process now."""
    rows = world.client.request(
        "GET", f"/dags/{RECOVERY}/dagRuns/~/taskInstances", params={"state": "running", "order_by": "-start_date"}
    )
    for row in rows["task_instances"]:
        if row.get("pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(row["pid"]), signal.SIGKILL)
                return True
    return None


def two_recoveries(world: World) -> Seen:
    second = f"{RECOVERY}_2"
    (world.folder / "dags" / "second_recovery.py").write_text(SECOND)
    world.client.wait_for_dag(second, PATIENCE)
    run = _many(world, 3)
    run.hit_at = time.time()
    world.kill_scheduler()
    run.go()
    run.line("step ", 6)
    took = time.time() - run.hit_at
    run.succeeds()
    wrong = stays(lambda: world.requeues(run), "requeues")
    world.client.request("PATCH", f"/dags/{second}", body={"is_paused": True})
    return _of_many(run, took, *wrong)


def _many(world: World, count: int) -> Run:
    """Have so many tasks at work in one run."""
    set_pool(world, 8)
    run = world.run("stalls_many", "hold", count=count)
    run.task_id = "one"
    run.line("step ", count)
    return run


def _of_many(run: Run, took: float | None, *wrong: str) -> Seen:
    applied = Counter(line.split()[1] for line in run.lines if line.startswith("applied "))
    seen = measured(run, took, *wrong, *(f"{item} was applied {n} times" for item, n in applied.items() if n > 1))
    return Seen(
        seen.requeues, len(applied), 0, seen.attempts, seen.state, seen.kinds, seen.detect, seen.go_on, seen.wrong
    )


def api_away(world: World) -> Seen:
    lost, healthy = world.run("stalls_0", "hold"), world.run("stalls_patient", "hold")
    pid, supervisor = lost.at_risk()
    healthy.at_risk()
    with world.without_api_server():
        lost.hit(supervisor, pid)
        wrong = stays(lambda: world.requeues(healthy), "requeues of the healthy run", AWAY)
    wait_for(patiently(lambda: world.client.health() and True), "the API", PATIENCE)
    lost.go()
    took = again(lost)
    lost.succeeds()
    healthy.go()
    healthy.succeeds()
    other = measured(healthy)
    if (other.requeues, other.effects, other.calls, other.state) != (0, 1, 2, "success"):
        wrong.append(f"the healthy run: {other}")
    return measured(lost, took, *wrong)


def not_started(world: World) -> Seen:
    """
    Be queued, and lost on the way to the executor.

    Set in Airflow's own database: no part of LocalExecutor loses a message alone. A dead idle worker blocks all of
    them, the recovery DAG's own task as well.
    """
    set_pool(world, 0)
    run = world.run("stalls_many", "none", count=1)
    run.task_id = "one"
    wait_for(lambda: run.scheduled() == 1 or None, "the task to be scheduled", PATIENCE)
    run.hit_at = time.time()
    world.metadata(
        "update task_instance set state = 'queued', queued_dttm = now() where task_id = 'one' and run_id = %s",
        run.run_id,
    )
    set_pool(world, 8)

    def told() -> bool | None:
        return any(kind == "not_started" for kind, _, _ in world.incidents(run)) or None

    wait_for(told, "a find that names it", SELDOM)
    took = again(run, "attempt ", 1)
    run.succeeds()
    return _of_many(run, took)


def idle_run(world: World) -> Seen:
    today = datetime.now(UTC)
    before = world.run("stalls_waiting", "fail", logical_date=(today - timedelta(days=1)).isoformat())
    before.ended()
    run = world.run("stalls_waiting", "none", logical_date=today.isoformat())
    run.hit_at = time.time()

    def told() -> bool | None:
        return any(kind == "idle_run" for kind, _, _ in world.incidents(run)) or None

    wait_for(told, "a find that names it", SELDOM)
    return measured(run)


def clock_ahead(world: World) -> Seen:
    return _with_wrong_clocks(world, "stalls_ahead", 600)


def clock_behind(world: World) -> Seen:
    return _with_wrong_clocks(world, "stalls_behind", -600)


def _with_wrong_clocks(world: World, dag_id: str, off: float) -> Seen:
    healthy, lost = world.run(dag_id, "hold"), world.run(dag_id, "hold")
    healthy.at_risk()
    pid, supervisor = lost.at_risk()
    shown = float(lost.line("clock ")[1]) - time.time()
    lost.hit(supervisor, pid)
    lost.go()
    took = again(lost)
    lost.succeeds()
    wrong = stays(lambda: world.requeues(healthy), "requeues of the healthy run")
    if abs(shown - off) > 60:
        wrong.append(f"the clock was {shown:.0f} s off, must be {off:.0f} s")
    healthy.go()
    healthy.succeeds()
    other = measured(healthy)
    if (other.requeues, other.effects, other.attempts) != (0, 1, 1):
        wrong.append(f"the healthy run: {other}")
    return measured(lost, took, *wrong)


#: Key of the case -> how it is played.
PLAYS: dict[str, Play] = {
    each.__name__: each
    for each in (
        task_killed,
        task_killed_retries,
        supervisor_killed,
        worker_killed,
        worker_killed_default,
        children_end,
        orphan,
        scheduler_killed,
        stopped,
        hung,
        gil_held,
        loop_blocked,
        deadly_step,
        unheard_failed,
        unheard_running,
        lost_return,
        restarting,
        person_fails,
        person_fails_many,
        person_races,
        paused_dag,
        recovery_killed,
        two_recoveries,
        api_away,
        crowd,
        not_started,
        idle_run,
        clock_ahead,
        clock_behind,
    )
}
