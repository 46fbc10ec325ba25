"""Which failed calls are repeated inside an attempt, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import (
    ModelError,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.llm.retry import LONGEST_PAUSE, SPREAD, call_with_retries
from airflow_aiflow.testing.clock import ManualClock

ANSWER = LlmAnswer(value="yes", usage=Usage())


class Caller:
    """Fail as it is told, then answer; keep when each call was made."""

    def __init__(self, clock: ManualClock, *errors: ModelError) -> None:
        self._clock = clock
        self._errors = list(errors)
        self.times: list[float] = []

    def call(self, request: LlmRequest) -> LlmAnswer:
        self.times.append(self._clock.monotonic())
        if self._errors:
            raise self._errors.pop(0)
        return ANSWER

    def close(self) -> None:
        pass


def unserved(retry_after: float | None = None) -> ModelUnavailableError:
    return ModelUnavailableError("not now", status_code=429, retry_after=retry_after)


def ask(
    caller: Caller,
    clock: ManualClock,
    *,
    attempts: int = 4,
    patience: float = 60.0,
    stop: Callable[[], bool] | None = None,
    dice: float = 0.0,
) -> LlmAnswer:
    return call_with_retries(
        caller, LlmRequest("?"), clock=clock, attempts=attempts, patience=patience, stop=stop, dice=lambda: dice
    )


def test_what_was_not_served_is_asked_again() -> None:
    clock = ManualClock()
    caller = Caller(clock, unserved(), unserved())
    assert ask(caller, clock) is ANSWER
    assert clock.waits == [1.0, 2.0]


@pytest.mark.parametrize(
    "error",
    [ModelIncompleteError("cut"), ModelTimeoutError("late"), ModelRequestError("no"), ModelOutputError("misfit")],
    ids=lambda error: type(error).__name__,
)
def test_what_may_have_been_billed_or_stays_wrong_is_not(error: ModelError) -> None:
    clock = ManualClock()
    caller = Caller(clock, error)
    with pytest.raises(type(error)):
        ask(caller, clock)
    assert len(caller.times) == 1


@pytest.mark.parametrize("dice", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("asked", [0.0, 7.0, 30.0])
def test_a_wait_that_is_asked_for_is_never_cut_short(asked: float, dice: float) -> None:
    clock = ManualClock()
    caller = Caller(clock, unserved(asked))
    ask(caller, clock, dice=dice)
    assert caller.times[1] - caller.times[0] >= asked
    assert caller.times[1] - caller.times[0] <= max(asked, 1.0) * (1 + SPREAD)


def test_a_wait_beyond_the_patience_is_left_to_the_task() -> None:
    clock = ManualClock()
    caller = Caller(clock, unserved(3600))
    with pytest.raises(ModelUnavailableError) as caught:
        ask(caller, clock)
    assert caught.value.retry_after == 3600
    assert clock.waits == []


def test_the_patience_is_over_all_waits() -> None:
    clock = ManualClock()
    caller = Caller(clock, unserved(25), unserved(25), unserved(25))
    with pytest.raises(ModelUnavailableError):
        ask(caller, clock)
    assert clock.waits == [25.0, 25.0]


def test_tries_end() -> None:
    clock = ManualClock()
    caller = Caller(clock, *(unserved() for _ in range(9)))
    with pytest.raises(ModelUnavailableError):
        ask(caller, clock, attempts=3)
    assert len(caller.times) == 3


def test_pauses_grow_to_a_limit() -> None:
    clock = ManualClock()
    caller = Caller(clock, *(unserved() for _ in range(8)))
    ask(caller, clock, attempts=9, patience=1e9)
    assert clock.waits == [1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_superseded_attempt_waits_for_nothing() -> None:
    clock = ManualClock()
    caller = Caller(clock, unserved(), unserved())
    with pytest.raises(ModelUnavailableError):
        ask(caller, clock, stop=lambda: True)
    assert len(caller.times) == 1
