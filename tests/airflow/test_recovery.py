"""
Recovery in a real Airflow: a task without retries loses its worker, and its run comes home.

The shared stack has no recovery DAG, for other tests watch what Airflow does by itself: it is put there for this module
and taken away again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.airflow_client import AirflowApiError, AirflowClient, wait_for
from airflow_aiflow.local.recovery_bundle import RECOVERY_DAG
from airflow_aiflow.local.stack import Stack

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 120.0

#: A second one beside the first, as a person's mistake would make it.
TWICE = RECOVERY_DAG.replace("recovery_dag()", 'recovery_dag(dag_id="aiflow_recovery_2", poll_interval=1)')


@dataclass(frozen=True)
class Run:
    """One run of ``recovered``, and the file in which its task counts."""

    stack: Stack
    client: AirflowClient
    run_id: str
    folder: Path

    @property
    def lines(self) -> list[str]:
        """What the tasks have written so far."""
        file = self.folder / "count.txt"
        return file.read_text().splitlines() if file.exists() else []

    def line(self, start: str) -> list[str]:
        """Wait for a line and give its words."""

        def look() -> str | None:
            return next((line for line in self.lines if line.startswith(start)), None)

        return wait_for(look, f"line {start!r}", PATIENCE).split()

    def kill_worker(self) -> None:
        """Kill the supervisor, and the task before it can tell."""
        *_, task, supervisor = self.line("step 3")
        for pid in (supervisor, task):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def go(self) -> None:
        """Let the step that is held go on."""
        (self.folder / "go").touch()

    def ended(self) -> str:
        """Wait for the success of the run: it may count as failed for a moment."""
        return self.client.wait_for_run("recovered", self.run_id, PATIENCE, frozenset({"success"}))

    def ledger(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the ledger; ``%(run)s`` is the run's id."""
        with psycopg.connect(self.stack.postgres.dsn()) as connection:
            return connection.execute(query.encode(), {"run": self.run_id}).fetchall()

    def requeues(self) -> list[str]:
        """Give the states of all marks of this run."""
        query = "select r.state::text from aiflow.requeue r join aiflow.execution using (execution_id)"
        return [str(state) for (state,) in self.ledger(f"{query} where run_id = %(run)s")]


@pytest.fixture(scope="module")
def client(airflow_stack: Stack) -> Iterator[AirflowClient]:
    """Give an Airflow with two recovery DAGs; they are gone afterwards."""
    client = airflow_stack.airflow.client()
    files = {"aiflow_recovery.py": RECOVERY_DAG, "aiflow_recovery_2.py": TWICE}
    dags = ("aiflow_recovery", "aiflow_recovery_2")
    for name, text in files.items():
        (airflow_stack.plan.dags_folder / name).write_text(text)
    try:
        for dag_id in dags:
            client.wait_for_dag(dag_id, PATIENCE)
            wait_for(partial(_watches, client, dag_id), f"{dag_id} at work", PATIENCE)
        client.wait_for_dag("recovered")
        yield client
    finally:
        for name in files:
            (airflow_stack.plan.dags_folder / name).unlink()
        for dag_id in dags:
            wait_for(partial(_gone, client, dag_id), f"{dag_id} gone", PATIENCE)


def _watches(client: AirflowClient, dag_id: str) -> bool | None:
    found = client.request("GET", f"/dags/{dag_id}/dagRuns/~/taskInstances", params={"state": ["deferred"]})
    return bool(found["task_instances"]) or None


def _gone(client: AirflowClient, dag_id: str) -> bool | None:
    """Stop a recovery DAG and delete it, its runs and its triggers with it."""
    try:
        client.request("PATCH", f"/dags/{dag_id}", body={"is_paused": True})
        for run in client.request("GET", f"/dags/{dag_id}/dagRuns", params={"state": ["running", "queued"]})[
            "dag_runs"
        ]:
            client.request("PATCH", f"/dags/{dag_id}/dagRuns/{run['dag_run_id']}", body={"state": "failed"})
        client.request("DELETE", f"/dags/{dag_id}")
    except AirflowApiError as error:
        return True if error.status == 404 else None
    except StackError:
        return None
    return True


@pytest.fixture
def start(airflow_stack: Stack, client: AirflowClient, tmp_path: Path) -> Callable[[], Run]:
    """Give a way to start a run that counts in a folder of its own."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)

    def begin() -> Run:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        folder.chmod(0o777)
        return Run(airflow_stack, client, client.trigger("recovered", {"folder": str(folder)}), folder)

    return begin


def test_a_run_without_retries_comes_home_although_two_recoveries_see_it(start: Callable[[], Run]) -> None:
    run = start()
    run.kill_worker()
    run.line("attempt 2")
    run.go()
    assert run.ended() == "success"
    steps = [line.split()[1] for line in run.lines if line.startswith("step")]
    # What was recorded is not done again; what was in hand is.
    assert steps == ["0", "1", "2", "3", "3"]
    assert [line for line in run.lines if not line.startswith("step")] == [
        "attempt 1 1",
        "attempt 2 1",
        "read [0, 1, 4, 9]",
    ]
    assert run.requeues() == ["consumed"]
    incidents = "select kind, decision::text, detected_after < 30 from aiflow.incident where run_id = %(run)s"
    assert run.ledger(incidents) == [("dead_worker", "requeue", True)]


def test_a_person_who_marks_it_failed_first_has_the_last_word(start: Callable[[], Run]) -> None:
    run = start()
    run.line("step 3")
    with ThreadPoolExecutor(1) as pool:
        marked = pool.submit(run.client.set_state, "recovered", run.run_id, "work", "failed")
        run.kill_worker()
        marked.result()
    query = "select decision::text, why from aiflow.incident where run_id = %(run)s"
    said = wait_for(lambda: run.ledger(query) or None, "a look at it", PATIENCE)
    wait_for(lambda: any("a person's word stands" in why for _, why in run.ledger(query)) or None, str(said), PATIENCE)
    assert run.requeues() == []
    assert run.client.task_instance("recovered", run.run_id, "work")["state"] == "failed"
