"""One submission, and a ledger that holds nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from airflow_aiflow.durable.submission import Submission, SubmissionState


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
