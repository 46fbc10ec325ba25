"""An effect that leaves its process in mid-call: who may go on with it, and what everybody else meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.durable.policy import effect_options
from airflow_aiflow.exceptions import EffectInDoubtError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.visits import Left, Visit, VisitedCall
from airflow_aiflow.testing.task import DurableTask


class Gone(BaseException):
    """Be the signal by which a host learns that the slot goes back."""


class Killed(BaseException):
    """End a process in mid-call, as SIGKILL does."""


class Target:
    """Count, per entry, what reaches it; what each visit does is told before."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.kept: list[list[Any]] = []

    def visit(
        self, act: Callable[[Any], Any], *, entry: str = "execute", number: int = 1, retries: int = 0
    ) -> Callable[[Flow], Any]:
        def fn(*, number: int) -> Any:
            self.calls.append((entry, number))
            self.kept.append(list(here.kept))
            return act(number)

        fn.__qualname__ = "Target"
        here = Visit(entry)

        def body(flow: Flow) -> Any:
            options = effect_options({"key": "k", "on_in_doubt": "hold", "retries": retries}, flow._effect_defaults)
            return VisitedCall(flow._session, "job", fn, {"number": number}, options, flow._names.identify, here).run()

        return body


def leave(entry: str, keep: Any = None) -> Callable[[Any], Left]:
    return lambda _number: Left(Gone(), entry, keep)


@pytest.fixture
def task() -> DurableTask:
    return DurableTask()


@pytest.fixture
def target() -> Target:
    return Target()


def left(task: DurableTask, target: Target, *, by: str = "done", keep: Any = None) -> None:
    with pytest.raises(Gone):
        task.run(target.visit(leave(by, keep)))
    task.same_again()


def test_the_same_attempt_goes_on(task: DurableTask, target: Target) -> None:
    left(task, target, keep="first")
    assert task.run(target.visit(lambda number: number + 1, entry="done")) == 2
    assert target.calls == [("execute", 1), ("done", 1)]
    assert target.kept == [[], ["first"]]
    # Settled: whoever comes now gets the result.
    assert task.run(target.visit(lambda number: 99)) == 2
    assert len(target.calls) == 2


def test_it_may_leave_many_times(task: DurableTask, target: Target) -> None:
    for turn in range(5):
        left(task, target, by="execute", keep=turn)
    assert task.run(target.visit(lambda number: "ok")) == "ok"
    assert target.kept[-1] == [0, 1, 2, 3, 4]


def test_the_recorded_request_goes_on(task: DurableTask, target: Target) -> None:
    left(task, target)
    task.run(target.visit(lambda number: "ok", entry="done", number=2))
    assert target.calls[-1] == ("done", 1), "a template over the time differs from visit to visit"


@pytest.mark.parametrize("later", ["retried", "cleared"])
def test_another_attempt_does_not_go_on(task: DurableTask, target: Target, later: str) -> None:
    left(task, target, by="execute")
    task.retried()
    if later == "cleared":
        task.cleared()
    task.clock.wait(200_000)
    with pytest.raises(EffectInDoubtError):
        task.run(target.visit(lambda number: "twice"))
    assert len(target.calls) == 1


def test_it_does_not_go_on_by_another_door(task: DurableTask, target: Target) -> None:
    """A deferral is answered by the method that it named; ``execute`` would begin anew."""
    left(task, target, by="done")
    task.clock.wait(200_000)
    with pytest.raises(EffectInDoubtError):
        task.run(target.visit(lambda number: "twice", entry="execute"))
    assert len(target.calls) == 1


def test_a_process_that_was_lost_left_no_ticket(task: DurableTask, target: Target) -> None:
    def killed(_number: int) -> Any:
        raise Killed

    with pytest.raises(Killed):
        task.run(target.visit(killed))
    task.same_again()
    task.clock.wait(200_000)
    with pytest.raises(EffectInDoubtError):
        task.run(target.visit(lambda number: "twice"))
    assert len(target.calls) == 1


def test_a_ticket_is_taken_once(task: DurableTask, target: Target) -> None:
    """A process that took the ticket and was lost may have done its part: nobody goes on from there again."""

    def killed(_number: int) -> Any:
        raise Killed

    left(task, target, by="execute")
    with pytest.raises(Killed):
        task.run(target.visit(killed))
    task.same_again()
    task.clock.wait(200_000)
    with pytest.raises(EffectInDoubtError):
        task.run(target.visit(lambda number: "twice"))
    assert len(target.calls) == 2


def test_an_error_of_a_later_visit_is_an_unknown_outcome(task: DurableTask, target: Target) -> None:
    def fails(_number: int) -> Any:
        raise RuntimeError("the remote job failed, or did it")

    left(task, target)
    with pytest.raises(EffectInDoubtError, match="job"):
        task.run(target.visit(fails, entry="done"))


def test_what_was_surely_not_applied_begins_again(task: DurableTask, target: Target) -> None:
    def refused(_number: int) -> Any:
        raise ConnectionRefusedError("nobody listens")

    left(task, target)
    with pytest.raises(ConnectionRefusedError):
        task.run(target.visit(refused, entry="done"))
    assert task.run(target.visit(lambda number: "ok")) == "ok"
