"""An effect that leaves its process in mid-call: who may go on with it, and what everybody else meets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from airflow_aiflow.durable.policy import effect_options
from airflow_aiflow.exceptions import AttemptParked, EffectInDoubtError
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


def another(task: DurableTask) -> DurableTask:
    """Give a task of another run that shares the key, the ledger and the clock."""
    return DurableTask(run_id="another", ledger=task.ledger, clock=task.clock)


def shared(target: Target, act: Callable[[Any], Any], *, seconds: float | None = None, entry: str = "execute") -> Any:
    """Visit under a key of the whole DAG, and leave for so many seconds where the act is ``Left``."""

    def visit(number: int) -> Any:
        value = act(number)
        return replace(value, seconds=seconds) if isinstance(value, Left) else value

    return target.visit(visit, entry=entry)


@pytest.mark.parametrize(("seconds", "away"), [(86_400.0, 80_000.0), (None, 6 * 86_400.0)])
def test_who_left_on_purpose_is_not_taken_for_gone(
    task: DurableTask, target: Target, seconds: float | None, away: float
) -> None:
    """A deferral that is longer than the effect's timeout, and another run with the same key meanwhile."""
    with pytest.raises(Gone):
        task.run(shared(target, leave("done"), seconds=seconds))
    task.same_again()
    task.clock.wait(away)
    assert task.inbox.waiting() == []
    with pytest.raises(AttemptParked, match="has left it to go on later") as parked:
        another(task).run(target.visit(lambda number: "twice"))
    assert parked.value.delay <= 300.0, "it may come back at any time"
    assert task.run(target.visit(lambda number: "ok", entry="done")) == "ok"
    assert another(task).run(target.visit(lambda number: "twice")) == "ok"
    assert [entry for entry, _ in target.calls] == ["execute", "done"]


def test_who_does_not_come_back_in_time_is_in_doubt(task: DurableTask, target: Target) -> None:
    with pytest.raises(Gone):
        task.run(shared(target, leave("done"), seconds=3_600.0))
    task.clock.wait(3_600.0 + 60.0 + 1.0)
    with pytest.raises(EffectInDoubtError):
        another(task).run(target.visit(lambda number: "twice"))
    [entry] = task.inbox.waiting()
    assert entry.effect is not None


def test_a_later_attempt_waits_for_nobody_who_left(task: DurableTask, target: Target) -> None:
    """The next try of the same execution knows that nobody comes back to the one before."""
    with pytest.raises(Gone):
        task.run(shared(target, leave("done"), seconds=86_400.0))
    before = task.clock.monotonic()
    with pytest.raises(EffectInDoubtError):
        task.run(target.visit(lambda number: "twice"))
    assert task.clock.monotonic() - before < 60.0


def test_who_came_back_holds_the_call_until_its_own_lease_lapses(task: DurableTask, target: Target) -> None:
    """A second visit that is at work for longer than the first one's lease and the timeout is not gone."""
    with pytest.raises(Gone):
        task.run(shared(target, leave("done"), seconds=10.0))
    task.same_again()
    task.clock.wait(200.0)

    def elsewhere() -> None:
        with pytest.raises(AttemptParked):
            another(task).run(target.visit(lambda number: "twice"))
        looked.append(task.inbox.waiting())

    def meanwhile(_number: int) -> str:
        with ThreadPoolExecutor(1) as process:
            process.submit(elsewhere).result()
        return "ok"

    looked: list[Any] = []

    assert task.run(target.visit(meanwhile, entry="done")) == "ok"
    assert looked == [[]]
    assert [entry for entry, _ in target.calls] == ["execute", "done"]
