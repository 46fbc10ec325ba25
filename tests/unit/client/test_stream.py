"""How the client reads a stream: what it holds, and how long it is patient."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from airflow_aiflow.client import AiflowClient, SubmitError

ID = "01a22c26-3d85-7f2d-8154-c61e540ed270"
END = 'event: state\ndata: {"state": "succeeded"}\n\n'


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


def client(answer: Callable[[httpx.Request], httpx.Response], time: Time, **signed: Any) -> AiflowClient:
    transport = httpx.MockTransport(answer)
    return AiflowClient("http://airflow", transport=transport, wait=time.wait, clock=lambda: time.now, **signed)


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85", "\r", "\n", "\x0b", "\x1e"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_text_of_an_event_may_hold_what_some_count_as_the_end_of_a_line(char: str, newline: str) -> None:
    data = json.dumps({"kind": "llm.done", "data": f"a{char}b"}, ensure_ascii=False)
    body = f"id: 1.1.1\nevent: event\ndata: {data}\n\n{END}".replace("\n", newline)
    with client(lambda _: httpx.Response(200, content=body.encode()), Time(), token="t") as one:
        first, _ = one.stream(ID)
    assert (first.data["data"], first.cursor) == (f"a{char}b", "1.1.1")


def test_a_server_that_is_away_for_long_is_told_of() -> None:
    time = Time()
    with client(lambda _: httpx.Response(503), time, token="t") as one, pytest.raises(SubmitError, match="503"):
        list(one.stream(ID))
    assert 120 < time.now < 180


def test_a_token_that_has_run_out_is_changed_for_a_new_one() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            return httpx.Response(201, json={"access_token": "new"})
        if request.headers["Authorization"] != "Bearer new":
            return httpx.Response(401, json={})
        return httpx.Response(200, content=END.encode())

    with client(answer, Time(), login="ann", password="secret") as one:
        one._http.headers["Authorization"] = "Bearer old"
        assert [event.name for event in one.stream(ID)] == ["state"]


def test_a_login_that_never_works_is_told_of() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(201 if request.url.path == "/auth/token" else 401, json={"access_token": "useless"})

    with client(answer, Time(), login="ann", password="secret") as one, pytest.raises(SubmitError, match="401"):
        list(one.stream(ID))
