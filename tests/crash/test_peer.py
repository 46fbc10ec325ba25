"""The fourteen faults on our side; `make peer-report` plays the peer's beside them, in a real Airflow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.peer import ours, theirs
from tests.peer.__main__ import FAULTS, cell, report, wrong


def test_both_sides_play_the_same_faults() -> None:
    keys = [fault.key for fault in FAULTS]
    assert list(ours.SCENARIOS) == keys
    assert set(keys) - set(theirs.SCENARIOS) == {"sibling_raises", "frozen_and_thawed", "answer_forged"}


def test_what_is_not_as_it_must_be_is_found() -> None:
    right = {fault.key: {"effects": fault.ours[0], "calls": fault.ours[1], "asked": False} for fault in FAULTS}
    assert wrong(right) == []
    twice = right | {"second_run": {"effects": 2, "calls": 8, "asked": False}, "tool_added": "!TimeoutError: in vain"}
    assert [line.split(":")[0] for line in wrong(twice)] == ["second_run", "tool_added"]
    assert "2/8" in report(twice, {})
    assert cell({"effects": 1, "calls": 4, "asked": True}) == "1/4 asked"


@pytest.mark.slow
def test_ours_has_one_effect_in_each() -> None:
    """In a program of its own: it forks, and wants neither pytest's threads nor its files."""
    command = [sys.executable, "-m", "tests.peer", "--ours", "--json"]
    played = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr[-2000:]}"
    found = json.loads(played.stdout.splitlines()[-1])
    assert {key: seen["effects"] for key, seen in found["ours"].items()} == {fault.key: 1 for fault in FAULTS}
