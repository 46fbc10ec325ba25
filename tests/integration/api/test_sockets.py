"""The WebSocket: many submissions on one connection, rights for each, and no page but this site's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from fastapi import HTTPException
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from airflow_aiflow.api import following, rights, socket_routes
from airflow_aiflow.client import AiflowClient
from tests.integration.api.conftest import World
from tests.integration.api.stage import Stage, staged
from tests.integration.api.test_event_hub import pk_of, write
from tests.integration.api.test_events import Server

PATIENCE = 30.0


@pytest.fixture
def server(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    async def get_user(connection: Any, _: None, given: Any) -> Any:
        token = given.credentials if given else connection.cookies.get("_token")
        if token not in ("good", "bob"):
            raise HTTPException(403, "Invalid JWT token")
        return type(world.user)("ann" if token == "good" else "bob")

    monkeypatch.setattr(socket_routes, "get_user", get_user)
    made = Server(world)
    yield made
    made.stop()


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    with staged(world) as made:
        yield made


def opened(server: Server, *, token: str | None = "good", cookie: str | None = None, origin: str | None = None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if cookie is not None:
        headers["Cookie"] = f"_token={cookie}"
    url = server.url.replace("http", "ws") + "/aiflow/api/v1/ws"
    return connect(url, additional_headers=headers, origin=origin, proxy=None)  # type: ignore[arg-type]


def say(socket: ClientConnection, op: str, submission_id: str, **more: Any) -> None:
    socket.send(json.dumps({"op": op, "submission_id": submission_id, **more}))


def until(socket: ClientConnection, message: str, /, **wanted: Any) -> list[dict[str, Any]]:
    """Read up to a message."""
    found: list[dict[str, Any]] = []
    while True:
        found.append(json.loads(socket.recv(PATIENCE)))
        if found[-1]["type"] == message and wanted.items() <= found[-1].items():
            return found


def ticks(messages: list[dict[str, Any]]) -> list[int]:
    return [each["data"]["number"] for each in messages if each.get("kind") == "tick"]


def emit(stage: Stage, one: dict[str, Any], *numbers: int) -> None:
    stage.emit(one["run_id"], *numbers)


def submitted(server: Server, question: str) -> dict[str, Any]:
    with AiflowClient(server.url, token="any") as client:
        return client.submit("answer", {"question": question})


def test_many_are_followed_on_one_socket(server: Server, stage: Stage) -> None:
    many = [submitted(server, str(number)) for number in range(3)]
    with opened(server) as socket:
        for one in many:
            stage.begin(one["run_id"])
            say(socket, "subscribe", one["submission_id"])
        for number in range(4):
            for one in many:
                emit(stage, one, number)
        for one in many:
            stage.end(one["run_id"])
        found: list[dict[str, Any]] = []
        while sum(each["type"] == "over" for each in found) < len(many):
            found.append(json.loads(socket.recv(PATIENCE)))
    for one in many:
        mine = [each for each in found if each["submission_id"] == one["submission_id"]]
        assert ticks(mine) == [0, 1, 2, 3]
        assert [each["type"] for each in mine[-2:]] == ["state", "over"]
        assert mine[-2]["state"] == "succeeded"


def test_who_unsubscribes_hears_no_more_and_goes_on_by_cursor(server: Server, stage: Stage) -> None:
    one, other = submitted(server, "one"), submitted(server, "other")
    for each in (one, other):
        stage.begin(each["run_id"])
    with opened(server) as socket:
        for each in (one, other):
            say(socket, "subscribe", each["submission_id"])
        emit(stage, one, 1)
        cursor = until(socket, "event", kind="tick", submission_id=one["submission_id"])[-1]["cursor"]
        say(socket, "unsubscribe", one["submission_id"])
        until(socket, "unsubscribed")
        emit(stage, one, 2, 3)
        emit(stage, other, 9)
        heard = until(socket, "event", kind="tick", submission_id=other["submission_id"])
        assert {each["submission_id"] for each in heard} == {other["submission_id"]}
        say(socket, "subscribe", one["submission_id"], after=cursor)
        stage.end(one["run_id"])
        assert ticks(until(socket, "over")) == [2, 3]


def test_only_this_sites_own_pages_come_in_by_cookie(server: Server) -> None:
    own = server.url
    with opened(server, token=None, cookie="good", origin=own) as socket:
        say(socket, "unsubscribe", str(uuid4()))
        until(socket, "unsubscribed")
    for token, cookie, origin, status in (
        (None, "good", None, 403),
        (None, "good", "https://evil.example", 403),
        (None, "good", own.replace("127.0.0.1", "127.0.0.1.evil.example"), 403),
        (None, "good", "null", 403),
        (None, None, own, 401),
        (None, "bad", own, 401),
        ("bad", "good", own, 401),  # a token that was given is the one that counts
        (None, None, None, 403),
    ):
        with pytest.raises(InvalidStatus) as refused, opened(server, token=token, cookie=cookie, origin=origin):
            pass
        assert refused.value.response.status_code == status, (token, cookie, origin)


def test_what_one_may_not_see_is_not_there(server: Server) -> None:
    one = submitted(server, "mine")
    with opened(server, token="bob") as socket:
        said = []
        for each in (one["submission_id"], str(uuid4())):
            say(socket, "subscribe", each)
            [answer] = until(socket, "error")
            said.append((answer["status"], answer["detail"]))
    assert said[0] == said[1]
    assert said[0][0] == 404


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"op": "subscribe"}',
        '{"op": "subscribe", "submission_id": "../x"}',
        '{"op": "subscribe", "submission_id": 5}',
        '{"op": "drop", "submission_id": "01900000-0000-7000-8000-000000000000"}',
        '{"op": "subscribe", "submission_id": "01900000-0000-7000-8000-000000000000", "after": "x\\n"}',
        '{"op": "subscribe", "submission_id": "01900000-0000-7000-8000-000000000000", "after": 7}',
        "[" * 5_000,
    ],
)
def test_what_is_not_understood_is_said_and_harms_nothing(server: Server, text: str) -> None:
    with opened(server) as socket:
        socket.send(text)
        assert until(socket, "error")[-1]["status"] == 422
        say(socket, "unsubscribe", str(uuid4()))
        until(socket, "unsubscribed")


def test_a_cursor_whose_base_is_gone_is_refused(server: Server) -> None:
    one = submitted(server, "why?")
    with opened(server) as socket:
        say(socket, "subscribe", one["submission_id"], after=f"{'0' * 32}~")
        answer = until(socket, "error")[-1]
        assert (answer["status"], answer["submission_id"]) == (422, one["submission_id"])


def test_one_socket_has_its_limits(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_routes, "MOST", 1)
    one, other = submitted(server, "one"), submitted(server, "other")
    with opened(server) as socket:
        say(socket, "subscribe", one["submission_id"])
        say(socket, "subscribe", one["submission_id"])  # anew, from the beginning
        say(socket, "subscribe", other["submission_id"])
        assert until(socket, "error")[-1]["status"] == 429


def test_a_socket_ends_in_time_so_that_rights_are_looked_at_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_routes, "LONGEST_SECONDS", 0.2)
    monkeypatch.setattr(following, "LONGEST_SECONDS", 0.2)
    with opened(server) as socket:
        assert list(socket) == []
    assert socket.close_code == 1001


def test_who_may_not_see_results_is_not_told_a_models_words(
    world: World, server: Server, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = submitted(server, "why?")
    stage.begin(one["run_id"])
    emit(stage, one, 1)
    write(world, pk_of(world, (one["pipeline"], one["run_id"])), 3, kind="llm.delta")
    may = rights.may

    def no_results(user: Any, method: Any, dag_id: str, entity: Any = None) -> bool:
        return "XCOM" not in str(entity) and may(user, method, dag_id)

    def kinds() -> tuple[list[str], list[str]]:
        text = world.client.get(f"{one['links']['self']}/events", params={"wait": 1}).text
        by_page = [json.loads(line[6:]).get("kind") for line in text.splitlines() if line.startswith("data: ")]
        with opened(server) as socket:
            say(socket, "subscribe", one["submission_id"])
            by_socket = [each.get("kind") for each in until(socket, "event", kind="late")]
        return [k for k in by_page if k], [k for k in by_socket if k]

    write(world, pk_of(world, (one["pipeline"], one["run_id"])), 1, kind="late")
    for found in kinds():
        assert found.count("llm.delta") == 3
    monkeypatch.setattr(following, "may", no_results)
    for found in kinds():
        assert "llm.delta" not in found
        assert "tick" in found
        assert found[-1] == "late"


def test_what_is_no_text_ends_the_socket_with_a_word(server: Server) -> None:
    with opened(server) as socket:
        socket.send(b"\x00\xff")
        with pytest.raises(ConnectionClosedError):
            socket.recv(PATIENCE)
    assert socket.close_code == 1003
