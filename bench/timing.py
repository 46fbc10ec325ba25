"""Time calls in turns, so that a noisy moment of the machine hits every candidate alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

#: Calls of one candidate before the next has its turn: long enough to be warm, short enough to share the noise.
TURN = 50


def in_turns(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """
    Time candidates against each other.

    :param candidates: name -> one call.
    :param rounds: turns of ``TURN`` calls that each gets, after one that is not counted.
    :return: name -> milliseconds of each call.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, call in candidates.items():
            for _ in range(TURN):
                began = time.perf_counter()
                call()
                if turn:
                    times[name].append((time.perf_counter() - began) * 1000)
    return times


def median(values: list[float]) -> float:
    """Give the median."""
    return statistics.median(values)


def p95(values: list[float]) -> float:
    """Give the value that 95 of 100 stay below."""
    return statistics.quantiles(values, n=20)[-1]
