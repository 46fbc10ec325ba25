"""The report can say no: every count and time that is not as it must be is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.recovery.__main__ import delays, middle, report, speed, wrong
from tests.recovery.alone import in_words
from tests.recovery.expected import CASES, Case, Must, Seen, complaints, late
from tests.recovery.situations import PLAYS

CASE = Case("worker_killed", "a worker is killed", Must(kind="dead_worker", detect=10, go_on=15), "310 s")
GOOD = Seen(1, 1, 2, 2, "success", ("dead_worker",), 3.0, 6.0)


def test_every_case_is_played_and_every_play_is_a_case() -> None:
    assert [case.key for case in CASES] == list(PLAYS)


def test_what_is_as_it_must_be_is_no_finding() -> None:
    assert complaints(CASE, GOOD) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requeues": 2}, "requeues 2, must be 1"),
        ({"requeues": 0}, "requeues 0, must be 1"),
        ({"effects": 2}, "effects 2, must be 1"),
        ({"calls": 3}, "calls 3, must be 2"),
        ({"attempts": 3}, "attempts 3, must be 2"),
        ({"state": "failed"}, "the run is failed, must be success"),
        ({"kinds": ("hung",)}, "found as hung, must be dead_worker"),
        ({"kinds": ()}, "found as nothing"),
        ({"detect": 80.5}, "detect 80.5 s, must be within 80 s"),
        ({"detect": None}, "detect never"),
        ({"go_on": None}, "go_on never"),
        ({"wrong": ("the orphan lives on",)}, "the orphan lives on"),
    ],
)
def test_what_is_not_is_named(change: dict[str, Any], message: str) -> None:
    [found] = complaints(CASE, replace(GOOD, **change))
    assert found.startswith(f"worker_killed: {message}")


def test_seconds_may_be_given_slack_and_counts_not() -> None:
    slow = replace(GOOD, detect=35.0, go_on=50.0)
    assert len(complaints(CASE, slow, slack=1.0)) == 2
    assert complaints(CASE, slow) == []
    assert complaints(CASE, replace(slow, requeues=2)) != []


def test_what_takes_longer_than_usual_is_named_and_not_wrong() -> None:
    slow = replace(GOOD, detect=35.0)
    assert late(CASE, slow) == ["worker_killed: detect 35.0 s, usually within 10 s"]
    assert (late(CASE, GOOD), late(CASE, replace(GOOD, detect=None))) == ([], [])
    assert delays({"worker_killed": slow, "hung": "!TimeoutError"}) == late(CASE, slow)


@pytest.mark.parametrize(("took", "reached"), [(14.9, True), (15.0, False), (None, False)])
def test_a_speed_is_set_beside_its_aim(took: float | None, reached: bool) -> None:
    found = speed({"worker_killed": replace(GOOD, go_on=took), "hung": GOOD})
    assert found == {"worker_killed": {"median_s": took, "aim_s": 15.0, "reached": reached}}


def test_a_span_takes_either_end() -> None:
    races = replace(CASE, must=replace(CASE.must, requeues=(0, 1)))
    assert [complaints(races, replace(GOOD, requeues=number)) == [] for number in (0, 1, 2)] == [True, True, False]


def test_the_median_counts_for_seconds_and_the_worst_for_the_rest() -> None:
    rounds = [replace(GOOD, go_on=seconds) for seconds in (4.0, 20.0, 5.0)]
    assert middle(rounds) == replace(GOOD, go_on=5.0)
    assert middle([*rounds, replace(GOOD, requeues=2)]).requeues == 2
    assert middle([GOOD, replace(GOOD, go_on=None)]).go_on is None


def test_a_case_that_broke_down_is_wrong_and_one_that_could_not_be_played_is_not() -> None:
    assert wrong({"hung": "!TimeoutError: never"}) == ["hung: !TimeoutError: never"]
    assert wrong({"clock_ahead": "not played: it needs a library"}) == []


@pytest.mark.parametrize(
    ("go_on", "noticed", "words"),
    [
        (None, 310.4, "ended by Airflow after 310 s, never goes on; failed, 0 effects, 1 calls"),
        (None, None, "never goes on; failed, 0 effects, 1 calls"),
        (312.0, 5.0, "goes on after 312 s; failed, 0 effects, 1 calls"),
    ],
)
def test_what_airflow_did_alone_is_told_with_when(go_on: float | None, noticed: float | None, words: str) -> None:
    assert in_words(Seen(0, 0, 1, 1, "failed", go_on=go_on, noticed=noticed)) == words


def test_the_report_shows_airflow_alone_beside() -> None:
    lines = report({"worker_killed": GOOD, "hung": GOOD}, {"hung": "never goes on; running, 0 effects, 1 calls"})
    [killed] = [line for line in lines.splitlines() if line.startswith("kill -9 of supervisor and task")]
    assert "[310 s, then failed for good]" in killed
    assert "never goes on; running" in lines
