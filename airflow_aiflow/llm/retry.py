"""
Repeat a model call that was surely not served, inside one attempt.

A broken-off or late answer may have been billed, and an answer that does not fit will hardly fit at the next try: those
are left to the task's own retries. A wait that is longer than the patience is left to the task too, so that the
worker's slot goes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import tenacity

from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import ModelUnavailableError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest, ModelCaller

#: Tries of one call inside one attempt: enough for a rate limit's short waits, few against a server that is down.
ATTEMPTS = 4

#: Seconds that may be spent waiting between the tries of one call: less than what a reschedule costs.
PATIENCE = 60.0

#: Seconds before the second try; doubled for each further one.
FIRST_PAUSE = 1.0

#: Longest pause of our own choice, in seconds.
LONGEST_PAUSE = 20.0

#: Fraction of a pause that is added at random, so that the calls of a map do not come back all at once.
SPREAD = 0.25

#: Longest wait, in seconds, that a provider is believed to mean: a header that names a day, or a date by a clock that
#: is wrong, must not stop a task for that long.
LONGEST_ASKED = 3600.0

#: Shortest and longest time, in seconds, for which a task gives its slot back where the provider names no wait. It
#: grows with the time that the task has waited already.
SHORTEST_ABSENCE, LONGEST_ABSENCE = 30.0, 600.0

#: HTTP: too many requests.
TOO_MANY = 429


def call_with_retries(
    caller: ModelCaller,
    request: LlmRequest,
    *,
    clock: Clock,
    attempts: int = ATTEMPTS,
    patience: float = PATIENCE,
    stop: Callable[[], bool] | None = None,
    dice: Callable[[], float] = random.random,
) -> LlmAnswer:
    """
    Ask a model, and ask again where the call was surely not served.

    :param caller: who asks.
    :param request: what is asked.
    :param clock: waits.
    :param attempts: tries in all.
    :param patience: seconds that may be spent waiting in all. A provider that asks for a longer wait gets none: the
        error that says so is raised at once.
    :param stop: ends a wait when it is true (the attempt was superseded); the last error is raised.
    :param dice: gives numbers from 0 to 1.
    :raises ModelError: the last try's.
    """
    stopped = stop or (lambda: False)
    last: list[ModelUnavailableError] = []

    def once() -> LlmAnswer:
        if last and stopped():
            raise last[-1]
        try:
            return caller.call(request)
        except ModelUnavailableError as error:
            last.append(error)
            raise

    def wait(state: tenacity.RetryCallState) -> float:
        return _pause(state.attempt_number, last[-1].retry_after) * (1 + SPREAD * dice())

    def used_up(state: tenacity.RetryCallState) -> bool:
        late = state.idle_for + state.upcoming_sleep > patience
        return late or state.attempt_number >= attempts or stopped()

    def sleep(length: float) -> None:
        clock.wait(length, until=stopped)

    unserved = tenacity.retry_if_exception_type(ModelUnavailableError)
    return tenacity.Retrying(retry=unserved, wait=wait, stop=used_up, sleep=sleep, reraise=True)(once)


def _pause(number: int, asked: float | None) -> float:
    own = min(FIRST_PAUSE * 2.0 ** (number - 1), LONGEST_PAUSE)
    # Never earlier than asked for: a provider counts an early call against the limit.
    return max(own, asked or 0.0)


def is_told_to_wait(error: ModelUnavailableError) -> bool:
    """
    Say whether a provider asks for patience, rather than being out of order or out of reach.

    :param error: the last try's.
    """
    return error.status_code == TOO_MANY or error.retry_after is not None


def absence(error: ModelUnavailableError, waited: float, *, dice: Callable[[], float] = random.random) -> float:
    """
    Choose for how long a task gives its slot back.

    :param error: what the provider said.
    :param waited: seconds for which the task has waited already.
    :return: seconds: at least what was asked for, unless that is absurd.
    """
    own = min(max(waited / 2, SHORTEST_ABSENCE), LONGEST_ABSENCE)
    return min(max(own, error.retry_after or 0.0), LONGEST_ASKED) * (1 + SPREAD * dice())
