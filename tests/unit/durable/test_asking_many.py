"""One submission that can't be looked at or moved holds up no other's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from airflow_aiflow.durable.asking_many import MOST_ODD, ask_many
from airflow_aiflow.durable.run_view import RunSummary
from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService
from airflow_aiflow.exceptions import LedgerUnavailableError
from tests.unit.durable.one_submission import submission

BAD = "bad"


@dataclass
class Rows:
    """Keep some submissions, and choke on one of them."""

    rows: list[Submission]
    choke: bool
    moved: dict[UUID, SubmissionState] = field(default_factory=dict)
    tries: int = 0

    def pressing(self, *, limit: int) -> list[Submission]:
        return self.rows[:limit]

    def moved_many(self, moves: Sequence[tuple[Submission, SubmissionState]]) -> dict[UUID, datetime | None]:
        self.tries += 1
        if self.choke and any(one.run_id == BAD for one, _ in moves):
            raise ValueError("what the ledger chokes on")
        self.moved |= {one.submission_id: new for one, new in moves}
        return {one.submission_id: datetime.now(UTC) for one, _ in moves}


@dataclass
class Reader:
    """Sum up runs, all but one."""

    choke: bool

    def summaries(self, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], RunSummary]:
        if self.choke and any(run_id == BAD for _, run_id in runs):
            raise ValueError("what nobody can sum up")
        return {}


class Runs:
    """Be Airflow: all have succeeded."""

    def look_many(self, submissions: Sequence[Submission]) -> dict[tuple[str, str], Any]:
        return {one.run: SimpleNamespace(state="success", held=False) for one in submissions}


@pytest.mark.parametrize("choke", ["reader", "ledger"])
def test_one_that_is_odd_keeps_no_other_from_its_end(choke: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows(
        [submission(run_id=BAD if number == 57 else f"run {number}") for number in range(200)], choke == "ledger"
    )
    reader = Reader(choke == "reader")
    service = SubmissionService(cast(Any, rows), cast(Any, reader), cast(Any, Runs()), window_days=1)
    assert service.press_on() == 200
    assert str(rows.rows[57].submission_id) in caplog.text
    good = {one.submission_id for one in rows.rows if one.run_id != BAD}
    assert rows.moved == dict.fromkeys(good, SubmissionState.SUCCEEDED)
    assert rows.tries <= 17, "halves, and not one by one"


def test_what_fails_for_all_is_not_asked_for_each() -> None:
    asked: list[int] = []

    def fails(part: Sequence[int]) -> dict[int, int]:
        asked.append(len(part))
        raise ValueError("a table is missing")

    with pytest.raises(ValueError, match="a table is missing"):
        ask_many(range(200), fails)
    assert len(asked) < 40
    assert asked.count(1) == MOST_ODD + 1


def test_a_ledger_that_is_away_is_asked_once() -> None:
    asked: list[int] = []

    def away(part: Sequence[int]) -> dict[int, int]:
        asked.append(len(part))
        raise LedgerUnavailableError("away")

    with pytest.raises(LedgerUnavailableError):
        ask_many(range(200), away)
    assert asked == [200]
