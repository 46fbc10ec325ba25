"""A look that is late does not hold a run that was let go meanwhile: nobody would look again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import pytest

from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService


def submission(**changes: Any) -> Submission:
    plain = Submission(
        submission_id=uuid4(),
        user="ann",
        pipeline="answer",
        run_id="run",
        key="key",
        window=1,
        fingerprint=b"",
        input={},
        labels={},
        priority=0,
        state=SubmissionState.RUNNING,
        created_at=datetime.now(UTC),
        made=True,
    )
    return replace(plain, **changes)


@dataclass
class Row:
    """Keep one submission."""

    row: Submission

    def get(self, _one: Any) -> Submission:
        return self.row

    def ask(self, _one: Any, *, cancel: bool | None = None, hold: bool | None = None) -> bool:
        if cancel:
            self.row = replace(self.row, cancelling_for=0.0, hold_asked=False)
        elif hold is not None:
            self.row = replace(self.row, hold_asked=hold)
        return True

    def made(self, _one: Any) -> None:
        self.row = replace(self.row, made=True)

    def moved(self, _one: Any, old: SubmissionState, new: SubmissionState, *, retry: bool = False) -> bool:
        self.row = replace(self.row, state=new) if self.row.state is old else self.row
        return self.row.state is new


@dataclass
class Runs:
    """Be Airflow; another server resumes between the look at the ledger and that at the run."""

    rows: Row
    meanwhile: bool
    state: str = "running"
    held: bool = True
    deeds: list[str] = field(default_factory=list)

    def look(self, _one: Submission) -> Any:
        if not self.deeds:
            self.rows.ask(None, hold=self.meanwhile)
            self.held = self.meanwhile
        return replace(self)

    def hold(self, _one: Submission) -> None:
        self.held = True
        self.deeds.append("hold")

    def release(self, _one: Submission, _waiting: Any) -> None:
        self.held = False
        self.deeds.append("release")


class Reader:
    """Know of no attempt."""

    def executions(self, _dag_id: str, _run_id: str) -> list[Any]:
        return []


@pytest.mark.parametrize("meanwhile", [False, True])
def test_the_newer_word_stands(meanwhile: bool) -> None:
    rows = Row(submission(hold_asked=not meanwhile, state=SubmissionState.PAUSED))
    runs = Runs(rows, meanwhile)
    service = SubmissionService(cast(Any, rows), cast(Any, Reader()), cast(Any, runs), window_days=1)
    service.standing(rows.row)
    assert (runs.held, rows.row.hold_asked) == (meanwhile, meanwhile)
    assert runs.deeds == (["release", "hold"] if meanwhile else ["hold", "release"])
