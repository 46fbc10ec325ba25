"""When a watch ends: for a deed, or for somebody to be told; not for what is left alone, nor for a passing trouble."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.stall import Leave, Requeue, StallKind
from airflow_aiflow.exceptions import AiflowConfigError, AirflowRefusedError, LedgerUnavailableError
from airflow_aiflow.hooks import recovering
from airflow_aiflow.recovery.outside import MOST_RUNS, Outside
from airflow_aiflow.recovery.watch import IDLE_EVERY, MADE_UP_EVERY, OUTSIDE_EVERY, REAP_EVERY, TELL_EVERY, Watch
from airflow_aiflow.runtime.process import start_time, this_owner
from airflow_aiflow.triggers import zombie
from airflow_aiflow.triggers.zombie import ZombieRunTrigger
from tests.unit.recovery.doubles import NOW, AirflowDouble, LedgerDouble, ago, stalled, ti_id

QUEUED = ExecutionId("billing", "run", "first")


class Time:
    """A clock that goes where it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def watching(ledger: LedgerDouble, airflow: AirflowDouble, *, untold: bool | None = None) -> tuple[Watch, Time]:
    time = Time()
    wait = None if untold is None else (lambda: bool(untold))
    return Watch(ledger.port(), airflow.api(), RecoveryPolicy(), wait, time), time


def test_it_ends_on_a_deed() -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall)
    watch, _ = watching(LedgerDouble(stall), airflow)
    assert (watch.finds() or "").startswith("task pay of billing, run run: ")


def test_it_ends_on_a_requeue_that_was_broken_off_now_and_then() -> None:
    ledger = LedgerDouble()
    ledger.broken = [(1, 1, stalled().execution)]
    watch, time = watching(ledger, AirflowDouble())
    assert watch.finds() is None
    time.now += MADE_UP_EVERY
    assert watch.finds() == "task pay of billing, run run: its requeue was broken off after the clear"


def test_what_is_left_alone_is_noted_and_ends_nothing() -> None:
    stall = stalled()
    ledger, airflow = LedgerDouble(stall), AirflowDouble()
    airflow.holds(stall, state="queued")
    watch, _ = watching(ledger, airflow)
    assert watch.finds() is None
    assert ledger.left == ["Airflow is bringing an attempt"]


@pytest.mark.parametrize("trouble", [LedgerUnavailableError("gone"), AirflowRefusedError("GET", "/", 503, "starting")])
def test_a_trouble_that_passes_is_a_skipped_look(trouble: Exception, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(LedgerDouble):
        def at_work(self, **where: Any) -> Any:
            raise trouble

    watch, _ = watching(Broken(), AirflowDouble())
    assert watch.finds() is None
    assert "this look is skipped" in caplog.text


def test_a_refusal_is_no_trouble_that_passes() -> None:
    class Refuses(AirflowDouble):
        def task_instances(self, *ids: Any, **filters: Any) -> Any:
            raise AirflowRefusedError("GET", "/", 403, "no right")

    watch, _ = watching(LedgerDouble(stalled()), Refuses())
    with pytest.raises(AirflowRefusedError):
        watch.finds()


def test_a_report_ends_it_where_somebody_is_to_hear_of_it() -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall)
    airflow.paused = {"billing"}
    for untold, found in ((None, None), (False, None), (True, "somebody is to hear of something")):
        watch, _ = watching(LedgerDouble(stall), airflow, untold=untold)
        assert watch.finds() == found


def test_what_could_not_be_told_is_tried_again_after_a_minute() -> None:
    watch, time = watching(LedgerDouble(), AirflowDouble(), untold=True)
    assert watch.finds() is None
    time.now += TELL_EVERY
    assert watch.finds() == "somebody is to hear of something"


def test_a_sensor_that_looks_once_looks_at_all() -> None:
    airflow = queued(700)
    watch = Watch(LedgerDouble().port(), airflow.api(), RecoveryPolicy(), at_once=True)
    assert watch.finds() == "task first of billing, run run has been queued for 700 s"


def test_finds_do_not_put_off_what_is_looked_at_now_and_then() -> None:
    """Each find ends a watch: where one comes a minute, idle runs would never be looked at."""
    time, looked, airflow = Time(), dict[str, float](), queued(700)
    for _ in range(2):
        watch = Watch(LedgerDouble().port(), airflow.api(), RecoveryPolicy(), clock=time, looked=looked)
        assert watch.finds() is None
        time.now += OUTSIDE_EVERY / 2
    assert Watch(LedgerDouble().port(), airflow.api(), RecoveryPolicy(), clock=time, looked=looked).finds()


def test_a_process_that_dies_is_seen_without_a_question() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        owner = this_owner("a task")
        owner = type(owner)(**(owner.to_plain() | {"pid": child.pid, "start": start_time(child.pid)}))
        ledger = LedgerDouble()
        ledger.owners = [(1, 1, owner)]
        watch, _ = watching(ledger, AirflowDouble())
        assert watch.finds() is None
        assert not watch.somebody_died()
    finally:
        child.kill()
        child.wait()
    assert watch.somebody_died()


# --- what has no attempt ---


def queued(seconds: float, *, made: float | None = None) -> AirflowDouble:
    """Make an Airflow with a first attempt that is queued for so long."""
    airflow = AirflowDouble()
    number = ti_id(5, made=NOW - timedelta(seconds=seconds if made is None else made))
    airflow.put(QUEUED, "queued", id=str(number), queued_when=ago(seconds))
    return airflow


def test_what_nobody_starts_is_cleared_and_told_once() -> None:
    ledger, airflow = LedgerDouble(), queued(700)
    watch, time = watching(ledger, airflow)
    assert watch.finds() is None
    time.now += OUTSIDE_EVERY
    assert watch.finds() == "task first of billing, run run has been queued for 700 s"
    outside = Outside(ledger.port(), airflow.api(), RecoveryPolicy())
    [deed] = outside.start(outside.not_started())
    assert (airflow.cleared, deed.incident.kind) == ([["first"]], StallKind.NOT_STARTED)
    assert isinstance(deed.done, Requeue)
    airflow.put(QUEUED, "queued", id=str(ti_id(5)), queued_when=ago(700))
    assert outside.start(outside.not_started()) == []


@pytest.mark.parametrize(
    "airflow", [queued(500), queued(500, made=900), queued(700, made=300)], ids=["young", "waited before", "new try"]
)
def test_what_is_queued_for_less_than_airflow_gives_it_is_left_alone(airflow: AirflowDouble) -> None:
    assert Outside(LedgerDouble().port(), airflow.api(), RecoveryPolicy()).not_started() == []


def test_other_peoples_dags_and_paused_ones_are_left_alone() -> None:
    ledger, airflow = LedgerDouble(), queued(700)
    outside = Outside(ledger.port(), airflow.api(), RecoveryPolicy())
    airflow.paused = {"billing"}
    assert outside.not_started() == []
    airflow.paused, ledger.dags = set(), set()
    assert outside.not_started() == []


def test_a_queued_task_with_an_attempt_before_it_is_marked() -> None:
    stall = stalled(execution=QUEUED)
    ledger, airflow = LedgerDouble(stall), queued(700)
    outside = Outside(ledger.port(), airflow.api(), RecoveryPolicy())
    assert len(outside.start(outside.not_started())) == 1
    assert ledger.states == {1: "cleared"}


def test_one_that_has_started_meanwhile_is_left_alone() -> None:
    ledger, airflow = LedgerDouble(), queued(700)
    outside = Outside(ledger.port(), airflow.api(), RecoveryPolicy())
    found = outside.not_started()
    airflow.before_clear = lambda: airflow.put(QUEUED, "running")
    assert outside.start(found) == []


def test_a_run_in_which_nothing_moves_is_reported() -> None:
    ledger, airflow = LedgerDouble(), AirflowDouble()
    airflow.put(stalled().execution, "success", 1, end_date=ago(900))
    airflow.put(QUEUED, None, 2)
    watch, time = watching(ledger, airflow)
    time.now += IDLE_EVERY
    watch.finds()
    [(execution, what)] = ledger.notes
    assert (execution, isinstance(what, Leave)) == (ExecutionId("billing", "run", ""), True)
    assert "nothing in it has moved for 900 s" in what.why


def test_runs_that_run_for_days_do_not_hide_an_idle_one() -> None:
    ledger, airflow = LedgerDouble(), AirflowDouble()
    for number in range(MOST_RUNS + 10):
        airflow.put(replace(stalled().execution, run_id=f"a long one {number}"), "running", number)
    airflow.put(replace(stalled().execution, run_id="z"), "success", 1000, end_date=ago(900))
    airflow.put(replace(QUEUED, run_id="z"), None, 1001)
    outside = Outside(ledger.port(), airflow.api(), RecoveryPolicy())
    assert any(outside.note_idle_runs() for _ in range(60))


def test_a_look_at_idle_runs_that_fails_is_made_up_for_within_a_minute() -> None:
    class Broken(AirflowDouble):
        broken = True

        def running_runs(self) -> Any:
            if self.broken:
                raise AirflowRefusedError("GET", "/", 503, "starting")
            return super().running_runs()

    ledger, airflow = LedgerDouble(), Broken()
    airflow.put(stalled().execution, "success", 1, end_date=ago(900))
    airflow.put(QUEUED, None, 2)
    watch, time = watching(ledger, airflow)
    time.now += IDLE_EVERY
    watch.finds()
    assert ledger.notes == []
    airflow.broken = False
    time.now += OUTSIDE_EVERY
    watch.finds()
    assert len(ledger.notes) == 1


@pytest.mark.parametrize("state", ["success", "running", "up_for_retry", "awaiting_input"])
def test_a_run_in_which_something_moves_or_all_is_done_is_not(state: str) -> None:
    ledger, airflow = LedgerDouble(), AirflowDouble()
    airflow.put(stalled().execution, "success", 1, end_date=ago(900))
    airflow.put(QUEUED, state, 2, end_date=ago(900))
    assert Outside(ledger.port(), airflow.api(), RecoveryPolicy()).note_idle_runs() == []


# --- the trigger ---


@dataclass
class DoorsDouble:
    """What a trigger opens."""

    ledger: LedgerDouble
    api: AirflowDouble
    doubts: Any = None
    submissions: Any = None
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def events(monkeypatch: pytest.MonkeyPatch, doors: Any, **arguments: Any) -> list[Any]:
    """Run a trigger to its end."""

    async def opened(*conn_ids: str | None) -> Any:
        if isinstance(doors, Exception):
            raise doors
        return doors

    monkeypatch.setattr(recovering, "await_doors", opened)
    path, kwargs = ZombieRunTrigger(**arguments).serialize()
    assert path == "airflow_aiflow.triggers.zombie.ZombieRunTrigger"

    async def run() -> list[Any]:
        return [event async for event in ZombieRunTrigger(**kwargs).run()]

    return asyncio.run(run())


def test_a_trigger_ends_its_task_on_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    stall = stalled()
    airflow = AirflowDouble()
    airflow.holds(stall)
    doors = DoorsDouble(LedgerDouble(stall), airflow)
    [event] = events(monkeypatch, doors)
    assert (type(event).__name__, doors.closed) == ("TaskSuccessEvent", True)


def test_a_trigger_ends_its_task_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[dict[str, Any]] = []

    class Counts(LedgerDouble):
        def at_work(self, **where: Any) -> Any:
            looks.append(where)
            return []

    assert len(events(monkeypatch, DoorsDouble(Counts(), AirflowDouble()), poll_interval=0.01, lasts=0.2)) == 1
    assert len(looks) > 3


def test_a_trigger_that_can_t_work_says_why_and_fails_its_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zombie, "BEFORE_FAILING", 0.0)
    with pytest.raises(AiflowConfigError):
        events(monkeypatch, AiflowConfigError("the connection 'aiflow_api' is not defined"))


def test_the_arguments_of_a_trigger_are_plain() -> None:
    from airflow_aiflow.sensors import ZombieRunSensor

    sensor = ZombieRunSensor(task_id="find", policy={"max_recoveries": 3})
    kwargs = cast("Any", sensor.start_trigger_args).trigger_kwargs
    assert ZombieRunTrigger(**kwargs).serialize()[1] == kwargs
    assert kwargs["policy"] == {"max_recoveries": 3}


def test_what_nobody_may_reuse_any_more_is_forgotten_step_by_step() -> None:
    ledger = LedgerDouble()
    watch, time = watching(ledger, AirflowDouble())
    watch.finds()
    assert ledger.reaped == []
    for _ in range(2):
        time.now += REAP_EVERY
        watch.finds()
    watch.finds()
    assert ledger.reaped == [RecoveryPolicy().reuse_kept] * 2
