"""Clients on bad days: held back, slow, restless, gone; against real servers on a real ledger, and two at once."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest

from airflow_aiflow.api import following
from airflow_aiflow.client import AiflowClient, Event, protocol
from tests.integration.api.conftest import BODY, URL, World
from tests.integration.api.rough_proxy import rough
from tests.integration.api.stage import Stage, staged
from tests.integration.api.test_events import Server, ticks, until

PATIENCE = 60.0


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    made = Server(world)
    yield made
    made.stop()


@pytest.fixture
def stage(world: World) -> Iterator[Stage]:
    with staged(world) as made:
        yield made


@pytest.fixture
def other(world: World, migrated: str) -> Iterator[Server]:
    """Give a second server on the same ledger and the same Airflow."""
    twin = World(migrated)
    twin.runs.runs, twin.runs.results, twin.runs.lock = world.runs.runs, world.runs.results, world.runs.lock
    made = Server(twin)
    yield made
    made.stop()
    twin.submissions.close()
    twin.reader.close()
    twin.events.close()


def submitted(server: Server, question: str = "why?") -> dict[str, Any]:
    with AiflowClient(server.url, token="any") as client:
        return client.submit("answer", {"question": question})


def followed(client: AiflowClient, one: dict[str, Any], seen: list[Event]) -> None:
    for event in client.stream(one["submission_id"]):
        seen.append(event)


def rows(world: World) -> int:
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        [(count,)] = connection.execute("select count(*) from aiflow.submission").fetchall()
        return int(count)


def test_behind_a_proxy_that_holds_streams_back_events_come_by_polls(
    server: Server, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SILENCE", 1.0)
    one = submitted(server)
    stage.begin(one["run_id"])
    seen: list[Event] = []
    with (
        rough(server.port, "held") as proxy,
        AiflowClient(proxy.url, token="any") as client,
        ThreadPoolExecutor(1) as pool,
    ):
        done = pool.submit(followed, client, one, seen)
        for number in range(5):
            stage.emit(one["run_id"], number)
            until(lambda number=number: ticks(list(seen)) == list(range(number + 1)))
        stage.end(one["run_id"])
        done.result(PATIENCE)
    assert ticks(seen) == list(range(5))


def test_a_poll_for_events_ends_with_the_first_news_or_in_time(server: Server, stage: Stage) -> None:
    one = submitted(server)
    stage.begin(one["run_id"])
    url = f"{server.url}{URL}/{one['submission_id']}/events"
    assert "event: state" in httpx.get(url, params={"wait": 0}, timeout=PATIENCE).text
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.get, url, params={"wait": 25}, timeout=PATIENCE)
        stage.emit(one["run_id"], 1)
        assert '"number": 1' in asked.result(PATIENCE).text
    assert httpx.get(url, params={"wait": 26}).status_code == 422


def test_who_reads_slowly_gets_all_of_it_and_keeps_nobody_waiting(server: Server, stage: Stage, world: World) -> None:
    one = submitted(server)
    stage.begin(one["run_id"])
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    slow.connect(("127.0.0.1", server.port))
    slow.settimeout(PATIENCE)
    path = f"{URL}/{one['submission_id']}/events"
    slow.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    got = slow.recv(1)
    count, seen = 600, list[Event]()

    def emit_all(flow: Any) -> None:
        for number in range(count):
            flow.emit("tick", number=number, ballast="x" * 10_000)

    with AiflowClient(server.url, token="any") as client, ThreadPoolExecutor(1) as pool:
        done = pool.submit(followed, client, one, seen)
        stage.do(one["run_id"], emit_all)
        for _ in range(20):
            got += slow.recv(1)  # a byte at a time, while the other one sees all of it
        stage.end(one["run_id"])
        done.result(PATIENCE)
    assert ticks(seen) == list(range(count))
    while part := slow.recv(65_536):
        got += part
    slow.close()
    lines = got.decode().splitlines()
    numbers = [
        json.loads(line[5:])["data"]["number"] for line in lines if line.startswith("data:") and '"tick"' in line
    ]
    assert numbers == list(range(count))


def test_who_comes_again_a_hundred_times_sees_each_event_once(server: Server, stage: Stage, world: World) -> None:
    one = submitted(server)
    stage.begin(one["run_id"])
    stage.emit(one["run_id"], *range(100))
    numbers: list[int] = []
    cursor: str | None = None
    with AiflowClient(server.url, token="any") as client:
        for _ in range(100):
            stream = client.stream(one["submission_id"], after=cursor)
            for event in stream:
                if event.cursor is not None:
                    cursor = event.cursor
                    if event.data["kind"] == "tick":
                        numbers.append(event.data["data"]["number"])
                        break
            stream.close()
    assert numbers == list(range(100))
    until(lambda: not world.hub.followed)  # nobody who went is still served


def test_two_servers_on_one_ledger_tell_the_same(server: Server, other: Server, stage: Stage) -> None:
    one = submitted(server)
    stage.begin(one["run_id"])
    with AiflowClient(server.url, token="any") as here, AiflowClient(other.url, token="any") as there:
        seen: tuple[list[Event], list[Event]] = ([], [])
        with ThreadPoolExecutor(2) as pool:
            done = [
                pool.submit(followed, client, one, found) for client, found in zip((here, there), seen, strict=True)
            ]
            stage.emit(one["run_id"], *range(30))
            stage.end(one["run_id"])
            for each in done:
                each.result(PATIENCE)
        told = [[(event.cursor, event.data) for event in found if event.name == "event"] for found in seen]
        assert told[0] == told[1]
        # A cursor of one server is good at the other.
        middle = told[0][len(told[0]) // 2][0]
        rest = [event.cursor for event in there.stream(one["submission_id"], after=middle) if event.name == "event"]
        assert rest == [cursor for cursor, _ in told[0][len(told[0]) // 2 + 1 :]]


def test_twenty_equal_submits_at_two_servers_are_one_run(server: Server, other: Server, world: World) -> None:
    def submit(number: int) -> httpx.Response:
        where = (server, other)[number % 2]
        return httpx.post(f"{where.url}{URL}", json=BODY, timeout=PATIENCE)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(submit, range(20)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert [answer.status_code for answer in answers].count(202) == 1
    [run_id] = {answer.json()["run_id"] for answer in answers}
    until(lambda: run_id in world.runs.runs)
    assert list(world.runs.runs) == [run_id]
    assert rows(world) == 1


def test_who_goes_before_the_answer_has_one_task_all_the_same(server: Server, world: World) -> None:
    body = json.dumps(BODY).encode()
    head = f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as gone:
        gone.sendall(head.encode() + body)
    until(lambda: rows(world) == 1)
    again = httpx.post(f"{server.url}{URL}", json=BODY, timeout=PATIENCE)
    assert again.status_code == 200
    until(lambda: again.json()["run_id"] in world.runs.runs)
    assert len(world.runs.runs) == 1
    assert httpx.post(f"{server.url}{URL}", json=BODY | {"input": {"question": "who?"}}).status_code == 409


def test_a_silent_stream_shows_that_it_lives(server: Server, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.05)
    one = submitted(server)
    stage.begin(one["run_id"])
    with httpx.stream("GET", f"{server.url}{URL}/{one['submission_id']}/events", timeout=PATIENCE) as answer:
        quiet = 0
        for line in answer.iter_lines():
            quiet += line.startswith(":")
            if quiet == 3:
                break
    assert quiet == 3


def test_a_stream_ends_in_time_and_is_gone_on_with(
    server: Server, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LONGEST_SECONDS", 0.2)
    one = submitted(server)
    stage.begin(one["run_id"])
    seen: list[Event] = []
    with AiflowClient(server.url, token="any", wait=lambda _: None) as client, ThreadPoolExecutor(1) as pool:
        done = pool.submit(followed, client, one, seen)
        for number in range(10):
            stage.emit(one["run_id"], number)
            until(lambda number=number: number in ticks(list(seen)))
        stage.end(one["run_id"])
        done.result(PATIENCE)
    assert ticks(seen) == list(range(10))
