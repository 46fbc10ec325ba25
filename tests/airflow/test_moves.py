"""A client pauses, resumes and cancels in a real Airflow, while servers die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_aiflow.client import AiflowClient
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 180.0


@pytest.fixture
def client(airflow_stack: Stack) -> Iterator[AiflowClient]:
    server = airflow_stack.airflow
    airflow_stack.airflow.client().wait_for_dag("moved", PATIENCE)
    with AiflowClient(server.url, login="admin", password=server.admin_password) as made:
        yield made


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split() if path.exists() else []


def wait_until(client: AiflowClient, submission_id: str, state: str) -> None:
    wait_for(lambda: client.get(submission_id)["state"] == state or None, f"the state {state}", PATIENCE)


def states(airflow: AirflowClient, run_id: str) -> dict[str, str | None]:
    found = airflow.request("GET", f"/dags/moved/dagRuns/{run_id}/taskInstances")["task_instances"]
    return {each["task_id"]: each["state"] for each in found}


def started(client: AiflowClient, folder: Path) -> dict[str, str]:
    folder.chmod(0o777)
    one = client.submit("moved", {"folder": str(folder)})
    at_work = ("ticks-work", "ticks-side7", "plain")
    wait_for(lambda: all(lines(folder, name) for name in at_work) or None, "all at work", PATIENCE)
    return dict(one)


def test_a_paused_run_starts_nothing_and_goes_on_where_it_was(
    airflow_stack: Stack, client: AiflowClient, tmp_path: Path
) -> None:
    airflow = airflow_stack.airflow.client()
    one = started(client, tmp_path)
    assert client.pause(one["submission_id"])["pausing"]
    wait_until(client, one["submission_id"], "paused")
    paused = client.pause(one["submission_id"])
    assert (paused["state"], paused["pause_reason"]) == ("paused", "the run is held by a person")
    parked = {"work": "up_for_reschedule", "side": "up_for_reschedule"}
    wait_for(lambda: parked.items() <= states(airflow, one["run_id"]).items() or None, "the slots back", PATIENCE)
    before = lines(tmp_path, "ticks-work"), lines(tmp_path, "ticks-side7")
    (tmp_path / "go").touch()
    wait_for(lambda: states(airflow, one["run_id"])["plain"] == "success" or None, "the plain task's end", PATIENCE)
    # Other runs are made meanwhile, and what comes after the plain task alone does not start.
    other = client.submit("ticks", {"folder": str(tmp_path)})
    assert client.wait(other["submission_id"], timeout=PATIENCE)["state"] == "succeeded"
    (tmp_path / "go").unlink()
    assert client.get(one["submission_id"])["state"] == "paused"
    assert states(airflow, one["run_id"])["second"] is None
    assert (lines(tmp_path, "ticks-work"), lines(tmp_path, "ticks-side7")) == before
    assert not client.resume(one["submission_id"])["pausing"]
    count = len(before[0])
    wait_for(lambda: len(lines(tmp_path, "ticks-work")) > count or None, "more of its steps", PATIENCE)
    (tmp_path / "go").touch()
    assert client.wait(one["submission_id"], timeout=PATIENCE)["state"] == "succeeded"
    for who in ("work", "side7"):
        ran = lines(tmp_path, f"ticks-{who}")
        assert ran == [str(number) for number in range(len(ran))], "each step once, in order"
    assert lines(tmp_path, "booked") == ["a", "b"]
    assert (lines(tmp_path, "second"), lines(tmp_path, "after")) == (["ran"], ["ran"])


def test_a_cancel_ends_between_steps_takes_back_and_outlives_its_server(
    airflow_stack: Stack, client: AiflowClient, tmp_path: Path
) -> None:
    airflow = airflow_stack.airflow.client()
    one = started(client, tmp_path)
    asked = client.cancel(one["submission_id"])
    os.kill(airflow_stack.airflow.components()["api-server"], signal.SIGKILL)
    assert (asked["state"], asked["cancelling"]) == ("running", True)
    wait_until(client, one["submission_id"], "cancelled")
    assert lines(tmp_path, "unbooked") == ["b", "a"]
    assert airflow.wait_for_run("moved", one["run_id"], PATIENCE) == "failed"
    assert set(states(airflow, one["run_id"]).values()) <= {"failed", "upstream_failed", "skipped"}
    assert client.cancel(one["submission_id"])["state"] == "cancelled"
    ran = len(lines(tmp_path, "ticks-work"))
    assert not lines(tmp_path, "after")
    for _ in range(2):
        assert client.retry(one["submission_id"])["state"] in ("queued", "running")
    wait_for(lambda: len(lines(tmp_path, "ticks-work")) > ran or None, "more of its steps", PATIENCE)
    (tmp_path / "go").touch()
    assert client.wait(one["submission_id"], timeout=PATIENCE)["state"] == "succeeded"
    steps = lines(tmp_path, "ticks-work")
    assert steps == [str(number) for number in range(len(steps))], "what was recorded replayed"
    assert lines(tmp_path, "booked") == ["a", "b", "a", "b"]
