"""How an attempt ended, in the words that people read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_aiflow.durable.timeline import AttemptView

NOW = datetime(2026, 11, 30, tzinfo=UTC)
ONE = AttemptView(1, 1, "first", 1, NOW, NOW, None, live=False, died_in=None, host="worker-7", pid=7)


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled", "paused", "superseded"])
def test_an_end_that_was_written_is_told_as_it_was(ending: str) -> None:
    assert replace(ONE, ending=ending).outcome == ending


@pytest.mark.parametrize(
    ("ending", "live", "outcome"),
    [(None, True, "running"), (None, False, "killed"), ("lapsed", False, "killed"), ("let_go", False, "killed")],
)
def test_one_without_a_word_was_killed_or_is_at_work(ending: str | None, live: bool, outcome: str) -> None:
    assert replace(ONE, ending=ending, live=live).outcome == outcome
