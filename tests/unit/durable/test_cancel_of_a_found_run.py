"""A run whose maker was killed before it said so may be at work: a cancel ends it in steps, as any other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService
from tests.unit.durable.one_submission import Row, submission


@dataclass
class Runs:
    """Be Airflow, where the run is there."""

    deeds: list[str] = field(default_factory=list)
    state: str = "running"
    held: bool = False

    def look(self, _one: Submission) -> Runs:
        return self

    def make(self, _one: Submission) -> None:
        self.deeds.append("make")

    def end(self, _one: Submission) -> None:
        self.deeds.append("end")


def world() -> tuple[Row, Runs, SubmissionService]:
    rows, runs = Row(submission(state=SubmissionState.QUEUED, made=False)), Runs()
    return rows, runs, SubmissionService(cast(Any, rows), cast(Any, None), cast(Any, runs), window_days=1)


def test_by_who_cancels() -> None:
    rows, runs, service = world()
    service.cancel(rows.row)
    assert (runs.deeds, rows.row.made, rows.row.cancel_asked) == ([], True, True)
    assert rows.row.state is SubmissionState.QUEUED


def test_by_who_heals() -> None:
    rows, runs, service = world()
    rows.ask(None, cancel=True)
    service.make(rows.row)
    assert (runs.deeds, rows.row.made, rows.row.state) == (["make"], True, SubmissionState.QUEUED)


def test_one_that_counts_as_cancelled_is_ended_at_once() -> None:
    rows, runs, service = world()
    before = rows.row
    rows.row = replace(before, state=SubmissionState.CANCELLED, cancelling_for=0.0)
    service.make(before)
    assert runs.deeds == ["make", "end"]
