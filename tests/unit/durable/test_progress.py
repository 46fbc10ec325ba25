"""How far a run is, out of what its tasks said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_aiflow.durable.progress import RunProgress, Told, progress_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float, done: int, total: int | None = 100, message: str = "") -> Told:
    return Told(NOON + timedelta(seconds=seconds), done, total, message)


def seen(*told: list[Told], steps: tuple[str | None, ...] = (), now: float = 20) -> RunProgress:
    return progress_of(told, steps, NOON + timedelta(seconds=now))


def test_a_task_that_said_nothing_is_known_by_its_step() -> None:
    assert seen([], steps=("page", None, "page")) == RunProgress(None, None, ("page",), None, None)


def test_the_pace_so_far_gives_the_end() -> None:
    told = seen([at(0, 0), at(10, 20, message="page: 20 of 100")], now=15)
    assert (told.done, told.total, told.message) == (20, 100, "page: 20 of 100")
    assert told.eta_seconds == 35.0, "80 left at 2 a second are 40 s from the last word, which is 5 s old"


def test_tasks_are_summed_up_and_the_last_one_counts() -> None:
    told = seen([at(0, 0), at(10, 50)], [at(0, 0), at(10, 10)], now=10)
    assert (told.done, told.total, told.eta_seconds) == (60, 200, 90.0)


def test_a_task_that_does_not_know_its_total_leaves_the_end_open() -> None:
    told = seen([at(0, 0), at(10, 50)], [at(0, 1, None), at(10, 9, None)])
    assert (told.done, told.total, told.eta_seconds) == (59, None, None)


@pytest.mark.parametrize("earlier", [at(0, 90, 100), at(0, 7, 40)], ids=["was nearly done", "another total"])
def test_an_earlier_map_of_the_same_task_says_nothing_of_this_one(earlier: Told) -> None:
    told = seen([earlier, at(100, 0), at(110, 10)], now=110)
    assert (told.done, told.total, told.eta_seconds) == (10, 100, 90.0)


def test_what_is_through_needs_no_time_and_one_word_is_too_early() -> None:
    assert seen([at(0, 50), at(10, 100)]).eta_seconds == 0.0
    assert seen([at(0, 50)]).eta_seconds is None
