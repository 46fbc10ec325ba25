"""A deadline gives also the attempt its time that began while the deadline was found to be over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.durable.submission import Submission
from airflow_aiflow.durable.submitting import SubmissionService
from tests.unit.durable.one_submission import Row, submission


@dataclass
class Runs:
    """Be Airflow."""

    stopped: list[Any] = field(default_factory=list)
    state: str = "running"
    held: bool = False

    def look(self, _one: Submission) -> Runs:
        return self

    def stop(self, _one: Submission, keep: Any) -> bool:
        self.stopped.append(list(keep))
        return bool(keep)

    def end(self, _one: Submission) -> None:
        self.state = "failed"


@dataclass
class Reader:
    """Know of an attempt that begins right after the first look."""

    looks: int = 0

    def executions(self, dag_id: str, run_id: str) -> list[ExecutionView]:
        self.looks += 1
        begun = ExecutionView(
            execution_pk=1,
            execution=ExecutionId(dag_id, run_id, "work"),
            state=ExecutionState.RUNNING,
            generation=1,
            heard=False,
            attempt=1,
            sign="first",
            on_clear=None,
            started_at=datetime.now(UTC),
            finished_at=None,
            pause_reason=None,
            live=True,
        )
        return [] if self.looks == 1 else [begun]


def test_what_is_at_work_is_read_after_the_wish_stands() -> None:
    one = submission(deadline=datetime.now(UTC), overdue=True)
    rows, runs = Row(one), Runs()
    service = SubmissionService(cast(Any, rows), cast(Any, Reader()), cast(Any, runs), window_days=1)
    service.standing(one)
    assert rows.row.cancel_asked
    assert (runs.stopped, runs.state) == ([[("work", -1)]], "running"), "it comes to the end of its step"
