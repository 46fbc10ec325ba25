"""Submissions in a real Airflow: job h as it stands is the pipeline, its clients come and go."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from airflow_aiflow.client import AiflowClient, Event, SubmitError
from airflow_aiflow.durable.submission import SubmissionRequest
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.recovery.unmade import make_unmade
from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 120.0

JOB = (Path(__file__).parents[1] / "jobs" / "h_interactive.txt").read_text()
FILLED = JOB.replace(
    "def search(q: str) -> list[str]: ...", 'def search(q: str) -> list[str]:\n    return [f"{q} is answered here"] * 3'
)

MOVES = ("cancel", "pause", "resume", "retry")

QUESTION = {"question": "When is the rent due?"}


@pytest.fixture(scope="module")
def airflow(airflow_stack: Stack) -> AirflowClient:
    """Give the API of an Airflow that knows the pipeline."""
    assert FILLED != JOB
    (airflow_stack.plan.dags_folder / "h_interactive.py").write_text(FILLED)
    client = airflow_stack.airflow.client()
    client.wait_for_dag("answer", PATIENCE)
    return client


@pytest.fixture
def client(airflow_stack: Stack, airflow: AirflowClient) -> Iterator[AiflowClient]:
    server = airflow_stack.airflow
    with AiflowClient(server.url, login="admin", password=server.admin_password) as made:
        yield made


def test_job_h_is_submitted_followed_and_answered(client: AiflowClient, airflow: AirflowClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        several = list(pool.map(lambda _: client.submit("answer", QUESTION), range(8)))
    [submission_id] = {each["submission_id"] for each in several}
    events = list(client.stream(submission_id))
    kinds = [event.data.get("kind") for event in events if event.name == "event"]
    assert "progress" in kinds
    assert "llm.delta" in kinds or "step" in kinds
    assert events[-1].data["state"] == "succeeded"
    result = client.result(submission_id)
    assert isinstance(result, str)
    assert result
    again = client.submit("answer", QUESTION)
    assert (again["submission_id"], again["state"]) == (submission_id, "succeeded")
    assert client.submit_and_wait("answer", QUESTION) == result
    airflow.wait_for_dag("two_ends", PATIENCE)
    assert client.submit_and_wait("two_ends", {}) == "this", "the policy wrote the mark where the API server reads it"


def test_what_does_not_fit_the_params_is_refused(client: AiflowClient) -> None:
    for given, pointer in (
        ({"question": "x"}, "/input/question"),
        ({}, "/input/question"),
        ({"question": "long enough", "doc": []}, "/input/doc"),
        ({"question": "long enough", "docs": {}}, "/input/docs"),
    ):
        with pytest.raises(SubmitError, match="422") as refused:
            client.submit("answer", given)
        assert refused.value.problem["errors"][0]["pointer"] == pointer
    with pytest.raises(SubmitError, match="404"):
        client.submit("no_such_pipeline", {})


def test_no_route_is_open_and_a_cookie_of_another_site_changes_nothing(
    airflow_stack: Stack, client: AiflowClient
) -> None:
    server = airflow_stack.airflow
    one = client.submit("answer", QUESTION)["submission_id"]
    base = f"{server.url}/aiflow/api/v1"
    document = _token(server.url, server.admin_password, "/aiflow/api/v1/openapi.json")
    routes = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert {("POST", f"/api/v1/submissions/{{submission_id}}:{word}") for word in MOVES} <= routes
    for method, path in routes | {("GET", "/api/v1/openapi.json")}:
        filled = re.sub(r"\{\w+\}", "1", path.replace("{submission_id}", one))
        for headers in ({}, {"Authorization": "Bearer none"}):
            answer = httpx.request(method, f"{server.url}/aiflow{filled}", headers=headers)
            assert answer.status_code in (401, 403), (method, path, answer.status_code)
    cookie = {"_token": _bearer(server.url, server.admin_password)}
    for site, status in (("cross-site", 403), ("same-origin", (200, 409))):
        headers = {"Sec-Fetch-Site": site}
        answer = httpx.post(f"{base}/submissions/{one}:cancel", cookies=cookie, headers=headers)
        assert answer.status_code in (status if isinstance(status, tuple) else (status,))


def test_a_row_whose_server_died_becomes_one_run(airflow_stack: Stack, airflow: AirflowClient) -> None:
    """As after a SIGKILL between the row and the run: recovery and servers make it at once, and it is one."""
    rows = PostgresSubmissions.connect(airflow_stack.postgres.dsn())
    request = SubmissionRequest(user="admin", pipeline="answer", input=QUESTION, key="left behind")
    row, _ = rows.submit(request, window_days=30)
    gone, _ = rows.submit(
        SubmissionRequest(user="admin", pipeline="no_such", input={}, key="left behind"), window_days=30
    )
    with psycopg.connect(airflow_stack.postgres.dsn(), autocommit=True) as connection:
        connection.execute("update aiflow.submission set created_at = created_at - interval '1 minute'")
    api = AirflowApi(airflow_stack.airflow.url, login="admin", password=airflow_stack.airflow.admin_password)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: make_unmade(rows, api), range(2)))

    def settled() -> str | None:
        """Give why the other one was refused, once both are no longer to be made."""
        now, refused = rows.get(row.submission_id), rows.get(gone.submission_id)
        return refused.refused if now is not None and now.made and refused is not None else None

    assert wait_for(settled, "both rows", PATIENCE) == "there is no pipeline 'no_such'"
    assert airflow.run("answer", row.run_id)["dag_run_id"] == row.run_id
    rows.close()
    api.close()


def test_a_client_outlives_the_death_of_the_api_server(
    airflow_stack: Stack, airflow: AirflowClient, client: AiflowClient, tmp_path: Path
) -> None:
    airflow.wait_for_dag("ticks", PATIENCE)
    tmp_path.chmod(0o777)
    one = client.submit("ticks", {"folder": str(tmp_path)})
    seen: list[Event] = []

    def told() -> list[Event]:
        return [event for event in seen if event.name == "event"]

    def follow_each() -> None:
        for event in client.stream(one["submission_id"]):
            seen.append(event)

    thread = threading.Thread(target=follow_each, daemon=True)
    thread.start()
    try:
        wait_for(lambda: len(told()) > 5 or None, "events", PATIENCE)
        before = airflow_stack.airflow.components()["api-server"]
        os.kill(before, signal.SIGKILL)
        count = len(told())
        wait_for(lambda: len(told()) > count + 5 or None, "events of another server", PATIENCE)
    finally:
        (tmp_path / "go").touch()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen[-1].data["state"] == "succeeded"
    cursors = [event.cursor for event in told()]
    assert len(cursors) == len(set(cursors))
    # Each attempt's steps as they were recorded: nothing fell out while nobody served.
    steps = [event.data["data"]["name"] for event in told() if event.data["kind"] == "step"]
    ran = client.get(one["submission_id"])["steps"]
    assert len(steps) == ran


def test_cancel_ends_it_and_retry_brings_it_home(client: AiflowClient, airflow: AirflowClient) -> None:
    one = client.submit("answer", {"question": "What if I go?"}, key="cancelled")
    client.cancel(UUID(one["submission_id"]))
    ended = client.wait(one["submission_id"], timeout=PATIENCE)
    assert ended["state"] in ("cancelled", "succeeded")
    if ended["state"] == "succeeded":
        return
    assert airflow.wait_for_run("answer", one["run_id"], PATIENCE) == "failed"
    # By it recovery knows a person's word from a death.
    wanted = {"dag_id": "answer", "run_id": one["run_id"], "event": "patch_dag_run"}
    entries = airflow.request("GET", "/eventLogs", params=wanted)["event_logs"]
    assert {entry["run_id"] for entry in entries} == {one["run_id"]}  # its maker may have ended it too
    assert client.cancel(one["submission_id"])["state"] == "cancelled"
    assert client.retry(one["submission_id"])["state"] in ("queued", "running")
    assert client.wait(one["submission_id"], timeout=PATIENCE)["state"] == "succeeded"


def _bearer(url: str, password: str) -> str:
    answer = httpx.post(f"{url}/auth/token", json={"username": "admin", "password": password})
    return str(answer.json()["access_token"])


def _token(url: str, password: str, path: str) -> Any:
    return httpx.get(f"{url}{path}", headers={"Authorization": f"Bearer {_bearer(url, password)}"}).json()
