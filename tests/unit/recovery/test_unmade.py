"""One submission that Airflow refuses keeps neither the others from their end nor recovery from its looks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import RecoveryPolicy
from airflow_aiflow.durable.stall import Settle, StallKind
from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.recovery.unmade import end_wished, make_unmade
from airflow_aiflow.recovery.watch import Watch
from tests.unit.recovery.doubles import LedgerDouble


def cancelled(run_id: str) -> Submission:
    return Submission(
        submission_id=uuid4(),
        user="ann",
        pipeline="answer",
        run_id=run_id,
        key=run_id,
        window=1,
        fingerprint=b"",
        input={},
        labels={},
        priority=0,
        state=SubmissionState.RUNNING,
        created_at=datetime.now(UTC),
        made=True,
        cancelling_for=3600.0,
    )


class Rows:
    """Keep submissions."""

    def __init__(self, *rows: Submission) -> None:
        self.rows = {row.submission_id: row for row in rows}
        self.seen: list[Any] = []

    def pressing(self, *, limit: int = 100) -> list[Submission]:
        return list(self.rows.values())

    def unmade(self, *, older_than: float, limit: int) -> list[Submission]:
        return [row for row in self.rows.values() if row.state is SubmissionState.QUEUED]

    def late(self, *, older_than: float, limit: int) -> list[Submission]:
        return [row for row in self.rows.values() if row.state is SubmissionState.CANCELLED]

    def put_off(self, one: Any) -> None:
        self.seen.append(("put off", one))

    def made(self, one: Any) -> None:
        self.rows[one] = replace(self.rows[one], made=True, state=SubmissionState.RUNNING)

    def get(self, one: Any) -> Submission:
        return self.rows[one]

    def checked(self, one: Any) -> None:
        self.seen.append(one)

    def moved(self, one: Any, old: SubmissionState, new: SubmissionState) -> bool:
        self.rows[one] = replace(self.rows[one], state=new)
        return True


class Api:
    """Be Airflow's REST API, which refuses one run."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.told_at = datetime.now(UTC)

    def run(self, _dag_id: str, run_id: str) -> dict[str, Any]:
        return {"state": self.states.get(run_id, "running"), "run_after": "2026-01-01T00:00:00Z"}

    def request(self, method: str, path: str, body: Any = None) -> None:
        run_id = body["dag_run_id"] if method == "POST" else path.rpartition("/")[2]
        if run_id == "bad":
            raise AirflowRefusedError(method, path, 404 if method == "PATCH" else 500, "The Dag with ID: `answer`")
        if method == "POST" and run_id in self.states:
            raise AirflowRefusedError(method, path, 409, "it is there")
        self.states[run_id] = body.get("state", "queued")


def test_a_run_that_airflow_will_not_end_keeps_no_other_from_its_end() -> None:
    bad, good = cancelled("bad"), cancelled("good")
    rows = Rows(bad, good)
    assert end_wished(cast(Any, rows), cast(Any, Api())) == 2
    assert rows.get(good.submission_id).state is SubmissionState.CANCELLED


def test_nor_does_one_that_was_cancelled_before_it_was_made() -> None:
    late = [replace(cancelled(name), state=SubmissionState.CANCELLED, made=False) for name in ("bad", "good")]
    rows = Rows(*late)
    make_unmade(cast(Any, rows), cast(Any, Api()))
    assert rows.seen == [late[1].submission_id]


def test_a_run_that_nobody_made_is_made_and_noted_once() -> None:
    there, bad, new = (
        replace(cancelled(name), state=SubmissionState.QUEUED, made=False, cancelling_for=None)
        for name in ("there", "bad", "new")
    )
    rows, api, ledger = Rows(there, bad, new), Api(), LedgerDouble()
    api.states["there"] = "running"  # by a server that died before it said so
    watch = Watch(ledger.port(), cast(Any, api), RecoveryPolicy(), submissions=cast(Any, rows))
    for _ in range(2):
        assert watch.finds() is None
    assert api.states == {"there": "running", "new": "queued"}
    assert [(one.run_id, one.task_id, type(what)) for one, what in ledger.notes] == [("new", "", Settle)]
    assert ledger.noted_before == {(ExecutionId("answer", "new", ""), StallKind.UNMADE_RUN)}
