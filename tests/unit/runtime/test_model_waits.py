"""A model that answers "not now" for long: the task gives its slot back and comes again, and at last it fails."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptParked, ModelUnavailableError
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.retry import LONGEST_ABSENCE, LONGEST_ASKED, SPREAD
from airflow_aiflow.testing import DurableTask, ManualClock, ScriptedModels

HOUR = 3600.0


class Throttled:
    """Answer 429 until a moment of the clock."""

    def __init__(self, until: float, *, retry_after: float | None = None, status: int = 429) -> None:
        self.clock = ManualClock()
        self.until = self.clock.monotonic() + until
        self.retry_after = retry_after
        self.status = status
        self.models = ScriptedModels(self.answer)

    def answer(self, _request: LlmRequest) -> str:
        if self.clock.monotonic() < self.until:
            raise ModelUnavailableError("HTTP 429", status_code=self.status, retry_after=self.retry_after)
        return "yes"

    def task(self, settings: FlowSettings | None = None) -> DurableTask:
        return DurableTask(models=self.models, clock=self.clock, settings=settings)


def until_done(task: DurableTask, clock: ManualClock) -> list[float]:
    """Run a task as Airflow does where it gives its slot back; give how long it was away each time."""
    absences: list[float] = []
    while True:
        try:
            assert task.run(lambda flow: flow.llm("ask", "p")) == "yes"
        except AttemptParked as parked:
            absences.append(parked.delay)
            clock.advance(parked.delay)
            task.same_again()
        else:
            return absences


def test_an_hour_of_429_holds_no_slot() -> None:
    throttled = Throttled(HOUR)
    task = throttled.task()
    began = throttled.clock.monotonic()
    absences = until_done(task, throttled.clock)
    took = throttled.clock.monotonic() - began
    assert HOUR <= took < HOUR + LONGEST_ABSENCE * (1 + SPREAD)
    assert sum(absences) > 0.9 * took
    assert absences[0] >= 30
    assert max(absences) <= LONGEST_ABSENCE * (1 + SPREAD)
    assert len(throttled.models.requests) < 80


@pytest.mark.parametrize("asked", [90.0, 1800.0])
def test_a_long_wait_that_is_asked_for_is_kept(asked: float) -> None:
    throttled = Throttled(asked, retry_after=asked)
    absences = until_done(throttled.task(), throttled.clock)
    assert len(absences) == 1
    assert asked <= absences[0] <= asked * (1 + SPREAD)
    assert len(throttled.models.requests) == 2, "not once before the time that was asked for"


@pytest.mark.parametrize("asked", [1e9, timedelta(days=1).total_seconds()])
def test_an_absurd_wait_is_capped(asked: float) -> None:
    throttled = Throttled(HOUR, retry_after=asked)
    absences = until_done(throttled.task(), throttled.clock)
    assert [LONGEST_ASKED <= absence <= LONGEST_ASKED * (1 + SPREAD) for absence in absences] == [True]


def test_it_fails_once_its_time_is_used_up() -> None:
    throttled = Throttled(10 * HOUR)
    task = throttled.task(FlowSettings(model_wait=HOUR))
    with pytest.raises(ModelUnavailableError) as caught:
        until_done(task, throttled.clock)
    assert any("as long as [aiflow] model_wait allows" in note for note in caught.value.__notes__)
    assert throttled.clock.monotonic() - 1000 < HOUR + 60


def test_the_next_attempt_waits_anew() -> None:
    throttled = Throttled(10 * HOUR)
    task = throttled.task(FlowSettings(model_wait=HOUR))
    with pytest.raises(ModelUnavailableError):
        until_done(task, throttled.clock)
    with pytest.raises(AttemptParked):
        task.run(lambda flow: flow.llm("ask", "p"))


@pytest.mark.parametrize("status", [500, 503, None])
def test_a_server_that_is_down_is_left_to_the_tasks_retries(status: int | None) -> None:
    throttled = Throttled(HOUR, status=status)  # type: ignore[arg-type]
    with pytest.raises(ModelUnavailableError):
        throttled.task().run(lambda flow: flow.llm("ask", "p"))


def test_a_map_records_what_was_answered_before_it_goes() -> None:
    clock = ManualClock()

    def answer(request: LlmRequest) -> str:
        if request.prompt == "p3" and clock.monotonic() < 1000 + HOUR:
            raise ModelUnavailableError("HTTP 429", status_code=429)
        return f"answer to {request.prompt}"

    models = ScriptedModels(answer)
    task = DurableTask(models=models, clock=clock)
    prompts = [f"p{number}" for number in range(6)]
    absences = 0
    while True:
        try:
            answers = task.run(lambda flow: flow.llm_map("page", prompts, max_workers=2))
            break
        except AttemptParked as parked:
            absences += 1
            clock.advance(parked.delay)
            task.same_again()
    assert answers == [f"answer to p{number}" for number in range(6)]
    assert absences > 1
    served = [request.prompt for request in models.requests if request.prompt != "p3"]
    assert sorted(served) == ["p0", "p1", "p2", "p4", "p5"], "each was paid once"
