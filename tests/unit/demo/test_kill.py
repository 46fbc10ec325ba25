"""Where to kill."""

from __future__ import annotations

import pytest

from airflow_aiflow.demo.kill import MOST_KILLS, MOST_WORKERS, pages_at, read_kill_points
from airflow_aiflow.exceptions import AiflowConfigError


@pytest.mark.parametrize(
    ("text", "points"),
    [("60", (60,)), ("5,30,60,90", (5, 30, 60, 90)), (" 5 %, 30.5% ", (5, 30.5)), ("", ()), ("0", (0,))],
)
def test_points_are_read(text: str, points: tuple[float, ...]) -> None:
    assert read_kill_points(text.replace(" %", "%")) == points


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("half", "'half' is no percentage"),
        ("nan", "nan is not from 0"),
        ("100", "100 is not from 0 to below 100"),
        ("-1", "-1 is not from 0"),
        ("60,30", "30 comes after 60"),
        ("60,60", "60 comes after 60"),
        (",".join(map(str, range(MOST_KILLS + 1))), f"{MOST_KILLS + 1} kills"),
    ],
)
def test_a_wrong_point_is_named(text: str, message: str) -> None:
    with pytest.raises(AiflowConfigError, match=message):
        read_kill_points(text)


def test_a_worker_is_killed_no_more_often_than_recovery_brings_its_run_back() -> None:
    points = ",".join(map(str, range(MOST_WORKERS + 1)))
    assert len(read_kill_points(points)) == MOST_WORKERS + 1
    with pytest.raises(AiflowConfigError, match=f"recovery brings a run back {MOST_WORKERS} times"):
        read_kill_points(points, "worker")


def test_a_point_is_a_number_of_pages_with_one_left_to_do() -> None:
    assert pages_at((5, 30, 60, 90), 600) == [30, 180, 360, 540]
    assert pages_at((0, 60, 99.9), 10) == [0, 6, 9]
    assert pages_at((60,), 1) == [0]
