"""A small campaign; `make chaos` runs large ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.chaos import Plan, judge, plans
from tests.crash.forks import Ended

EXECUTIONS = 10


def seen(**changes: Any) -> list[Ended[Plan]]:
    value = {"done": True, "attempts": 2, "hits": {"killed": 1}, "applied": [1, 1], "billed": 2, "results": 1}
    return [Ended(Plan(0, 0, "retry", False), Path("0"), value | changes)]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, None),
        ({"applied": [1, 2]}, "duplicated"),
        ({"applied": [0, 1]}, "lost"),
        ({"done": False}, "stuck"),
        ({"results": 2}, "differing results"),
    ],
)
def test_what_is_wrong_is_found(changes: dict[str, Any], found: str | None) -> None:
    judged = judge(seen(**changes))
    wrong = [name for name in ("duplicated", "lost", "stuck", "differing results") if judged[name]]
    assert wrong == ([found] if found else [])


def test_an_execution_that_came_to_nothing_is_stuck() -> None:
    assert judge([Ended(Plan(0, 0, "hold", False), Path("0"), "!no end")])["stuck"]


def test_what_is_far_away_has_a_target_that_dedups() -> None:
    made = plans(200, 1)
    assert {plan.kind for plan in made if plan.far} == {"retry"}
    assert {plan.kind for plan in made} == {"hold", "ask", "retry", "reconcile"}


@pytest.mark.slow
def test_a_small_campaign() -> None:
    """In a program of its own: it forks, and wants neither pytest's threads nor its files."""
    seed = random.SystemRandom().randrange(1_000_000)
    command = [sys.executable, "-m", "tests.crash.chaos", "--number", str(EXECUTIONS), "--seed", str(seed), "--json"]
    played = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert played.returncode == 0, f"seed {seed}\n{played.stdout}\n{played.stderr[-2000:]}"
    judged = json.loads(played.stdout.splitlines()[-1])
    assert judged["effects"] == 2 * EXECUTIONS
    assert judged["hits"].get("killed", 0) + judged["hits"].get("stopped", 0) > 0, judged
