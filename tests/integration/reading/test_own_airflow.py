"""A waiting task is told by Airflow's own API, inside of the server and with the rights of who answered."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from airflow_aiflow.api.own_airflow import SERVED
from airflow_aiflow.exceptions import AttemptAsks
from tests.integration.reading.house import URL, House

ASKED: list[tuple[str, str, str | None, Any]] = []


def mail(to: str) -> str:
    return to


def a_server(house: House, *, state: str) -> FastAPI:
    """Be Airflow's server, with the app mounted, and one task instance."""
    ASKED.clear()
    server = FastAPI()

    @server.api_route("/api/v2/{path:path}", methods=["GET", "PATCH"])
    async def core(path: str, request: Request) -> Any:
        body = None if request.method == "GET" else await request.json()
        ASKED.append((request.method, path, request.headers.get("Authorization"), body))
        return {"state": state, "queued_when": None}

    server.mount("/aiflow", house.app)
    return server


def ask(house: House) -> int:
    def body(flow: Any) -> Any:
        return flow.effect("mail", mail, "ann@example.com", key="invoice/1", require_approval=True)

    with pytest.raises(AttemptAsks):
        house.task("release").run(body)
    [entry] = house.get("/inbox").json()["items"]
    number: int = entry["number"]
    return number


def serve(server: FastAPI, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    module = ModuleType(SERVED)
    module.app = server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, SERVED, module)
    return TestClient(server)


def test_a_task_that_looks_by_itself_is_left_alone(fresh: House, monkeypatch: pytest.MonkeyPatch) -> None:
    number = ask(fresh)
    client = serve(a_server(fresh, state="up_for_reschedule"), monkeypatch)
    answer = client.post(
        f"{URL}/inbox/{number}:answer", json={"option": "Approve"}, headers={"Authorization": "Bearer of-ann"}
    )
    assert "goes on within some seconds" in answer.json()["next"]
    assert [(method, token) for method, _, token, _ in ASKED] == [("GET", "Bearer of-ann")]


def test_what_airflow_can_not_be_told_costs_nobody_the_word(fresh: House, monkeypatch: pytest.MonkeyPatch) -> None:
    number = ask(fresh)
    server = FastAPI()
    server.mount("/aiflow", fresh.app)
    client = serve(server, monkeypatch)  # any path of Airflow's is 404
    assert client.post(f"{URL}/inbox/{number}:answer", json={"option": "Approve"}).status_code == 200
    question = fresh.reading.inbox.question(number)
    assert question is not None
    assert question.answer is not None


def test_without_a_server_of_airflows_the_answer_says_so(fresh: House) -> None:
    number = ask(fresh)
    answer = fresh.post(f"/inbox/{number}:answer", option="Approve").json()
    assert "looks into the inbox by itself" in answer["next"]
