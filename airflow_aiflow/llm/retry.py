"""
Repeat a model call that was surely not served, inside one attempt.

A broken-off or late answer may have been billed, and an answer that does not fit will hardly fit at the next try: those
are left to the task's own retries. A wait that is longer than the patience is left to them too, so that the worker's
slot goes back.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

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
    waited = 0.0
    for number in itertools.count(1):
        try:
            return caller.call(request)
        except ModelUnavailableError as error:
            pause = _pause(number, error.retry_after) * (1 + SPREAD * dice())
            if number >= attempts or waited + pause > patience:
                raise
            waited += pause
            if clock.wait(pause, until=stop):
                raise
    raise AssertionError("count() has no end")


def _pause(number: int, asked: float | None) -> float:
    own = min(FIRST_PAUSE * 2.0 ** (number - 1), LONGEST_PAUSE)
    # Never earlier than asked for: a provider counts an early call against the limit.
    return max(own, asked or 0.0)
