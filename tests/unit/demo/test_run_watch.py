"""What every demo's watch does, with a ledger and an Airflow that play a script: look, kill once a point, tell, end."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.demo import night, own_stack, run_watch, watch
from airflow_aiflow.demo.follow import Progress
from airflow_aiflow.demo.night import NightWatch
from airflow_aiflow.demo.own_stack import OwnStack
from airflow_aiflow.demo.run_watch import RunWatch
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.demo.watch import Watch
from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.stack import StackPlan

OWNER = Owner(hostname="here", boot_id="boot", pid_namespace=1, pid=4711, start=1, ti_id="ti")


def seen(fence: int, pages: int, *, assessed: int = 0, fresh: int = 1, ended: bool = False) -> Progress:
    return Progress("running", fence, fence, OWNER, ended, pages, assessed, fresh, None, None)


class Script:
    """Be the ledger, Airflow, the clock and whoever kills."""

    def __init__(self, looks: Sequence[Progress | None], state: str = "success") -> None:
        self.looks, self.state = list(looks), state
        self.now = 0.0
        self.killed: list[int] = []
        self.mended = 0
        self.screen = io.StringIO()

    def look(self) -> Progress | None:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def found_ago(self, fence: int) -> float | None:
        return None

    def run(self, dag: str, run_id: str) -> dict[str, str]:
        return {"state": self.state if len(self.looks) == 1 else "running"}

    def task_instance(self, *_: str) -> dict[str, int]:
        return {"try_number": 2}

    def logs(self, *_: Any) -> str:
        return "the last line"

    def kill(self, owner: Owner) -> int:
        self.killed.append(owner.pid)
        return 1

    def mend(self) -> None:
        self.mended += 1

    def monotonic(self) -> float:
        self.now += 0.3
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Any:
    def play(script: Script, kind: type[RunWatch], **options: Any) -> Any:
        for module in (run_watch, watch):
            monkeypatch.setattr(module, "time", script)
        for module in (watch, night):
            monkeypatch.setattr(module, "kill_tree", script.kill)
        found: dict[str, Any] = {"follower": script, "client": script, "mend": script.mend, "run_id": "r"}
        return kind(screen=Screen(script.screen), **found, **options)

    return play


def test_a_night_is_killed_once_at_each_point_and_goes_on_behind_what_is_recorded(played: Any) -> None:
    looks = [
        None,
        seen(1, 10),
        seen(1, 35),
        seen(1, 40),
        seen(2, 40),
        seen(2, 50),
        seen(2, 70),
        seen(3, 80),
        seen(3, 100),
    ]
    script = Script(looks)
    found = played(script, NightWatch, items=100, points=(30, 60))
    assert found.until_end() == "success"
    assert (found.kills, script.killed) == ([35, 70], [4711, 4711])
    assert found.last == seen(3, 100)
    assert script.mended
    told = script.screen.getvalue()
    assert "attempt 2 goes on behind the 35 that were recorded" in told
    assert "attempt 3 goes on behind the 70" in told


def test_a_review_tells_what_each_kill_cost(played: Any) -> None:
    looks = [seen(1, 2), seen(1, 6), seen(2, 6, fresh=0), seen(2, 7), seen(2, 10, assessed=2, ended=True)]
    script = Script(looks)
    watched = played(script, Watch, documents=2, pages=10, points=(60,)).until_end()
    [kill] = watched.kills
    assert (watched.state, kill.pages, kill.calls, kill.processes) == ("success", 6, 6, 1)
    assert kill.lost > 0
    assert watched.first_page is not None
    assert "attempt 2 goes on" in script.screen.getvalue()


@pytest.mark.parametrize(("kind", "options"), [(Watch, {"documents": 1, "pages": 10}), (NightWatch, {"items": 10})])
def test_the_end_of_the_log_is_told_of_a_run_that_fails_or_stands_still(
    played: Any, kind: type[RunWatch], options: dict[str, int]
) -> None:
    failed = Script([seen(1, 1)], "failed")
    played(failed, kind, points=(), **options).until_end()
    assert "The run failed; the end of the task's log:\nthe last line" in failed.screen.getvalue()
    with pytest.raises(StackError, match=r"has not moved for 180 s; the end of the task's log:\nthe last line"):
        played(Script([seen(1, 1)], "running"), kind, points=(), **options).until_end()


class FakeStack:
    """Be a stack that only counts."""

    fails = False
    stopped = 0

    def __init__(self, plan: StackPlan) -> None:
        self.plan = plan

    def start(self, ready: Any) -> None:
        if self.fails:
            raise StackError("no port")
        ready("postgres", 1.0)

    def stop(self) -> None:
        type(self).stopped += 1


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> type[FakeStack]:
    class Own(FakeStack):
        pass

    monkeypatch.setattr(own_stack, "Stack", Own)
    return Own


class Demo(OwnStack[int]):
    def _plan(self) -> StackPlan:
        return StackPlan(self._home, self._home / "dags")

    def run(self) -> int:
        return 7


def test_a_demos_stack_ends_with_it_and_its_folder_is_free_again(tmp_path: Path, stacks: type[FakeStack]) -> None:
    screen = io.StringIO()
    for _ in range(2):
        with Demo(tmp_path, Screen(screen)) as demo:
            assert demo.run() == 7
            assert demo.stack.plan.home == tmp_path
            with pytest.raises(StackError, match="another demo"), Demo(tmp_path, Screen(screen)):
                pass
    assert stacks.stopped == 2
    assert "postgres     ready after  1.0 s" in screen.getvalue()


def test_a_stack_that_does_not_start_leaves_its_folder_free(tmp_path: Path, stacks: type[FakeStack]) -> None:
    stacks.fails = True
    with pytest.raises(StackError, match="no port"), Demo(tmp_path, Screen(io.StringIO())):
        pass
    stacks.fails = False
    with Demo(tmp_path, Screen(io.StringIO())):
        pass
    assert stacks.stopped == 1
