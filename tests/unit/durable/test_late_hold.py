"""A look that is late does not hold a run that was let go meanwhile: nobody would look again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService
from tests.unit.durable.one_submission import Row, submission


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
