"""What an attempt tells dashboards: each step that ran, replays summed up, and nothing that could hold it up."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.runtime import meter
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask, ManualClock, ScriptedModels


class Broken(Exception):
    """Stand for the code's own error."""


class PricedModels(ScriptedModels):
    """Take a quarter of a dollar for each call."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        super().call(request)
        return LlmAnswer("a title", Usage("m", "r", tokens_in=10, tokens_out=5, cost=Decimal("0.25")))


def square(number: int) -> int:
    return number * number


def failing_once(flow: Flow) -> None:
    for number in range(3):
        flow.step("square", square, number)
    flow.llm("title", "name it")
    if flow.attempt == 1:
        raise Broken
    flow.step("after", square, 9)


def run_twice(task: DurableTask) -> None:
    with pytest.raises(Broken):
        task.run(failing_once)
    task.stats.figures.clear()
    task.run(failing_once)


def durations(task: DurableTask, *, replayed: bool) -> list[str]:
    word = "true" if replayed else "false"
    return [f.tags["step"] for f in task.stats.named("aiflow.step.duration") if f.tags["from_checkpoint"] == word]


def test_each_step_that_ran_is_told_with_what_it_took() -> None:
    clock = ManualClock()
    task = DurableTask(dag_id="d", task_id="t", clock=clock)

    def slow(seconds: float) -> None:
        clock.advance(seconds)

    task.run(lambda flow: flow.step("slow", slow, 3.5, cache_key="slow"))
    [figure] = task.stats.named("aiflow.step.duration")
    assert figure.kind == "timing"
    assert figure.value == pytest.approx(3.5)
    assert figure.tags == {"workflow": "d/t", "step": "slow", "from_checkpoint": "false"}
    assert task.stats.named("aiflow.steps.saved") == []


def test_a_resume_tells_what_it_saved_once() -> None:
    task = DurableTask(dag_id="d", task_id="t", models=PricedModels())
    run_twice(task)
    for name, value in (
        ("aiflow.steps.saved", 4),
        ("aiflow.llm.calls_saved", 1),
        ("aiflow.llm.cost_saved", 0.25),
    ):
        [figure] = task.stats.named(name)
        assert (figure.kind, figure.value) == ("count", value)
        assert figure.tags == {"workflow": "d/t", "sign": "retry"}


def test_replays_are_one_figure_a_name() -> None:
    task = DurableTask(models=PricedModels())
    run_twice(task)
    assert sorted(durations(task, replayed=True)) == ["square", "title"]
    assert durations(task, replayed=False) == ["after"]


def test_names_beyond_the_most_are_summed_but_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MOST_NAMES", 2)
    task = DurableTask()

    def body(flow: Flow) -> None:
        for number in range(5):
            flow.step(f"page {number}", square, number)
        if flow.attempt == 1:
            raise Broken

    with pytest.raises(Broken):
        task.run(body)
    task.run(body)
    assert len(durations(task, replayed=True)) == 2
    assert task.stats.total("aiflow.steps.saved") == 5


def test_a_long_attempt_tells_of_its_replays_before_its_end() -> None:
    clock = ManualClock()
    task = DurableTask(clock=clock)
    seen: list[float] = []

    def body(flow: Flow) -> None:
        flow.step("first", square, 1)
        if flow.attempt == 1:
            raise Broken
        clock.advance(meter.TELL_SECONDS)
        flow.step("second", square, 2)
        seen.append(task.stats.total("aiflow.steps.saved"))

    with pytest.raises(Broken):
        task.run(body)
    task.run(body)
    assert seen == [1]
    assert task.stats.total("aiflow.steps.saved") == 1


def mapped(flow: Flow) -> None:
    flow.map("page", square, range(200))
    flow.llm_map("title", ["one", "two"])
    if flow.attempt == 1:
        raise Broken


def test_items_of_a_map_are_one_figure() -> None:
    clock = ManualClock()
    task = DurableTask(clock=clock, models=PricedModels())
    with pytest.raises(Broken):
        task.run(mapped)
    assert durations(task, replayed=False).count("page") == 1
    assert durations(task, replayed=False).count("title") == 2
    task.stats.figures.clear()
    task.run(mapped)
    assert task.stats.total("aiflow.steps.saved") == 202
    assert task.stats.total("aiflow.llm.calls_saved") == 2
    assert task.stats.total("aiflow.llm.cost_saved") == 0.5
    assert durations(task, replayed=False) == []


def test_an_attempt_that_fails_tells_of_its_replays_too() -> None:
    task = DurableTask()

    def body(flow: Flow) -> None:
        flow.step("first", square, 1)
        raise Broken

    for _ in range(2):
        with pytest.raises(Broken):
            task.run(body)
    assert task.stats.total("aiflow.steps.saved") == 1


def test_commits_are_told_by_statement() -> None:
    task = DurableTask()

    def body(flow: Flow) -> None:
        flow.step("first", square, 1)
        flow.effect("mail", square, 2, key="k")

    task.run(body)
    told = [figure.tags["statement"] for figure in task.stats.named("aiflow.ledger.commit_seconds")]
    assert told.count("intend") == told.count("settle") == 1
    assert "record" in told
    assert all(figure.kind == "timing" for figure in task.stats.named("aiflow.ledger.commit_seconds"))


def test_without_stats_an_attempt_runs_all_the_same() -> None:
    task = DurableTask()
    services = dataclasses.replace(task.services, stats=None)

    def body(flow: Flow) -> int:
        return flow.step("first", square, 3)

    assert run_attempt(task.attempt(), services, body) == 9
    task.retried()
    assert run_attempt(task.attempt(), services, body) == 9
    assert task.stats.figures == []
