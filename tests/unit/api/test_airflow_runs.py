"""What the server does to Airflow's runs, over a session that only remembers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.models.log import Log
from airflow.sdk.serde import serialize

from airflow_aiflow.api import airflow_runs
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submission_ports import StoredResult
from airflow_aiflow.recovery.airflow_view import HANDS, _Hand
from airflow_aiflow.xcom import StoredList


def test_a_run_that_is_ended_for_a_client_stands_in_the_audit_log_as_a_persons_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else recovery takes the task that was ended for one that died, and runs what was cancelled."""
    done: list[Any] = []
    run = SimpleNamespace(state="running", run_after=datetime.now(UTC))
    session = SimpleNamespace(scalar=lambda _query: run, add=done.append)

    @contextmanager
    def remembered() -> Iterator[Any]:
        yield session

    monkeypatch.setattr(airflow_runs, "create_session", remembered)
    monkeypatch.setattr(airflow_runs, "_bag", lambda: SimpleNamespace(get_dag_for_run=lambda *_, **__: object()))
    monkeypatch.setattr(airflow_runs, "patch_dag_run_state", lambda **_: done.append("ended"))
    began = datetime.now(UTC) - timedelta(seconds=1)

    airflow_runs.AirflowRuns().end(_submission())

    entry, ended = done
    assert ended == "ended"
    assert isinstance(entry, Log)
    assert (entry.event in HANDS, entry.dag_id, entry.run_id) == (True, "answer", "run")
    hand = _Hand(
        {"event": entry.event, "owner": entry.owner, "extra": entry.extra, "task_id": None}
        | {"when": datetime.now(UTC).isoformat()}
    )
    assert hand.sets_state
    assert hand.touches(ExecutionId("answer", "run", "any"), began)


def test_large_results_of_a_mapped_task_are_not_read_before_there_is_a_place_for_them() -> None:
    large: Any = serialize(StoredList([1], "ab" * 32, 7))
    given = airflow_runs.returned([5, large])
    assert isinstance(given, StoredResult)
    assert given.sha256 is None
    assert airflow_runs.returned([large], alone=True).sha256 == bytes.fromhex("ab" * 32)
    assert (airflow_runs.returned([5, "a"]), airflow_runs.returned(["a"], alone=True)) == ([5, "a"], "a")


def _submission() -> Submission:
    return Submission(
        submission_id=uuid4(),
        user="ann",
        pipeline="answer",
        run_id="run",
        key="k",
        window=1,
        fingerprint=bytes(32),
        input={},
        labels={},
        priority=0,
        state=SubmissionState.RUNNING,
        created_at=datetime.now(UTC),
        made=True,
        cancelling_for=0.0,
    )
