"""The routes of the pages in a real Airflow: its users, its tokens, its runs, its clear, and a task that waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 120.0

DAG, RUN = "in_doubt", "reading_api"
WHERE = {"dag_id": DAG, "run_id": RUN, "task_id": "pay"}


@pytest.fixture(scope="module")
def airflow(airflow_stack: Stack) -> AirflowClient:
    client = airflow_stack.airflow.client()
    client.wait_for_dag(DAG, PATIENCE)
    return client


@pytest.fixture(scope="module")
def token(airflow_stack: Stack, airflow: AirflowClient) -> str:
    server = airflow_stack.airflow
    login = {"username": "admin", "password": server.admin_password}
    return str(httpx.post(f"{server.url}/auth/token", json=login, timeout=PATIENCE).json()["access_token"])


@pytest.fixture
def api(airflow_stack: Stack, token: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {token}"}
    base = f"{airflow_stack.airflow.url}/aiflow/api/v1"
    with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE) as client:
        yield client


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_doubt_is_answered_by_the_api_and_the_run_goes_on(
    airflow: AirflowClient, api: httpx.Client, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    airflow.trigger(DAG, {"folder": str(tmp_path)}, run_id=RUN)
    airflow.wait_for_task(DAG, RUN, "pay", "awaiting_input", timeout=PATIENCE)
    page = ok(api.get("/inbox", params={"dag_id": DAG, "run_id": RUN}))
    [entry] = page["items"]
    assert (entry["what"], entry["owner"], entry["may_answer"]) == ("doubt", "verified dead", True)
    assert entry["question"]["kind"] == "doubt"
    assert ok(api.get("/inbox/count"))["count"] >= 1
    [waiting] = ok(api.get("/executions", params={"dag_id": DAG, "run_id": RUN}))["items"]
    assert (waiting["state"], waiting["effects"]["in_doubt"]) == ("paused", 1)
    said = ok(api.post(f"/effects/{entry['number']}:resolve", json={"decision": "did_not_happen", "reason": "looked"}))
    assert "goes on within some seconds" in said["next"]
    assert airflow.wait_for_run(DAG, RUN, PATIENCE) == "success", "nobody told Airflow but the API itself"
    second = api.post(f"/effects/{entry['number']}:resolve", json={"decision": "happened"})
    assert (second.status_code, "answered by admin" in second.json()["detail"]) == (409, True)
    timeline = ok(api.get("/timeline", params=WHERE))
    assert timeline["attempts"][0]["outcome"] == "killed"
    assert timeline["execution"]["state"] == "succeeded"
    [effect] = timeline["effects"]
    assert effect["state"] == "succeeded"
    [line] = [one for one in ok(api.get("/inbox/answers"))["items"] if one["number"] == entry["number"]]
    assert (line["by"], line["said"], line["reason"]) == ("admin", "did_not_happen", "looked")


def test_the_last_runs_and_a_clear_come_from_airflow_itself(airflow: AirflowClient, api: httpx.Client) -> None:
    [run] = [one for one in ok(api.get(f"/dags/{DAG}/history"))["items"] if one["run_id"] == RUN]
    assert (run["state"], run["in_doubt"]) == ("success", 0)
    assert run["duration_ms"] > 0
    place = {"dag_id": DAG, "run_id": RUN}
    preview = ok(api.post("/clear:preview", json=place))
    [task] = preview["tasks"]
    assert task["task_id"] == "pay"
    assert task["verdict"].startswith("succeeded -> ")
    assert task["effects_kept"] == {"pay": 1}
    assert api.post("/clear:preview", json=place | {"task_ids": ["nothing"]}).status_code == 404
    assert api.post("/clear:preview", json=place | {"run_id": "never"}).status_code == 404
    chosen: dict[str, Any] = place | {"task_ids": ["pay"], "downstream": True}
    assert ok(api.post("/clear:wish", json=chosen | {"on_clear": "fresh"})) == {"executions": 1}
    body = {"dry_run": False, "dag_run_id": RUN, "task_ids": ["pay"], "only_failed": False, "reset_dag_runs": True}
    airflow.request("POST", f"/dags/{DAG}/clearTaskInstances", body=body)
    assert ok(api.post("/clear:wish_settled", json=chosen | {"cleared": True})) == {"executions": 1}

    def anew() -> Any:
        timeline = ok(api.get("/timeline", params=WHERE))
        done = timeline["execution"]["state"] == "succeeded" and timeline["execution"]["generation"] == 2
        return timeline if done else None

    timeline = wait_for(anew, "the fresh start", PATIENCE)
    assert timeline["generations"][-1]["why"] == "cleared"
    assert [one["state"] for one in timeline["effects"]] == ["succeeded"], "effects stay deduplicated"


def test_the_pages_routes_ask_who_it_is(airflow_stack: Stack, token: str, api: httpx.Client) -> None:
    base = f"{airflow_stack.airflow.url}/aiflow/api/v1"
    assert httpx.get(f"{base}/overview", timeout=PATIENCE).status_code == 401
    assert httpx.get(f"{base}/inbox", headers={"Authorization": "Bearer none"}, timeout=PATIENCE).status_code == 401
    cookie = {"_token": token}
    with httpx.Client(base_url=base, cookies=cookie, timeout=PATIENCE) as browser:
        assert browser.get("/overview").status_code == 200
        body = {"decision": "happened"}
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {}):
            assert browser.post("/effects/1:resolve", json=body, headers=headers).status_code == 403
        here = {"Sec-Fetch-Site": "same-origin"}
        assert browser.post("/effects/999999:resolve", json=body, headers=here).status_code == 404
        form = browser.post("/effects/1:resolve", data=body, headers=here)
        assert form.status_code == 415
    found = ok(api.get("/overview"))
    assert found["runs"] >= 0
    assert ok(api.get("/limits")) == {"items": []}
    document = ok(api.get("/openapi.json"))
    assert "/api/v1/timeline" in document["paths"]
