"""How the client waits for an end: by the stream, over restarts of the server, and by polls where no stream comes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from airflow_aiflow.client import AiflowClient, protocol
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.integration.api.conftest import URL, World
from tests.integration.api.rough_proxy import rough
from tests.integration.api.test_events import Server, emits, says, task, until

PATIENCE = 60.0


class Recorded(httpx.HTTPTransport):
    """Note what is asked; refuse streams where that is wanted."""

    def __init__(self, refused: int | None = None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._refused = refused

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            self.asked.append("events" if request.url.path.endswith("/events") else "state")
        if self._refused is not None and request.url.path.endswith("/events"):
            return httpx.Response(self._refused, json={})
        return super().handle_request(request)


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    made = Server(world)
    yield made
    made.stop()


def test_the_end_is_heard_by_one_stream(world: World, server: Server) -> None:
    noted = Recorded()
    with AiflowClient(server.url, token="any", transport=noted) as client, ThreadPoolExecutor(1) as pool:
        one = client.submit("answer", {"question": "why?"})
        waiting = pool.submit(client.wait, one["submission_id"])
        says(world, one, "running")
        until(lambda: world.hub.followed)
        says(world, one, "success")
        assert waiting.result(PATIENCE)["state"] == "succeeded"
    assert noted.asked == ["events", "state"]


def test_a_restart_of_the_server_is_outlived(world: World, server: Server) -> None:
    noted = Recorded()
    with AiflowClient(server.url, token="any", transport=noted) as client, ThreadPoolExecutor(1) as pool:
        one = client.submit("answer", {"question": "why?"})
        says(world, one, "running")
        waiting = pool.submit(client.wait, one["submission_id"])
        until(lambda: world.hub.followed)
        server.stop()
        server.start()
        until(lambda: noted.asked.count("events") == 2)  # it is followed anew
        says(world, one, "success")
        assert waiting.result(PATIENCE)["state"] == "succeeded"


@pytest.mark.parametrize("status", [404, 405, 406])
def test_a_server_without_streams_is_polled(world: World, server: Server, status: int) -> None:
    noted = Recorded(status)
    with AiflowClient(server.url, token="any", transport=noted) as client, ThreadPoolExecutor(1) as pool:
        one = client.submit("answer", {"question": "why?"})
        waiting = pool.submit(client.wait, one["submission_id"])
        until(lambda: "state" in noted.asked)
        says(world, one, "success")
        assert waiting.result(PATIENCE)["state"] == "succeeded"
    assert noted.asked.count("events") == 1, "it is not asked for what it does not have"


def test_behind_a_proxy_that_holds_streams_back_it_is_polled(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "SILENCE", 1.0)
    noted = Recorded()
    with (
        rough(server.port, "held") as proxy,
        AiflowClient(proxy.url, token="any", transport=noted) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        one = client.submit("answer", {"question": "why?"})
        waiting = pool.submit(client.wait, one["submission_id"])
        until(lambda: "state" in noted.asked)
        says(world, one, "success")
        assert waiting.result(PATIENCE)["state"] == "succeeded"
    assert noted.asked.count("events") == 1


def test_who_waits_in_vain_is_told_in_time(server: Server) -> None:
    with AiflowClient(server.url, token="any") as client:
        one = client.submit("answer", {"question": "why?"})
        with pytest.raises(TimeoutError, match=r"has not ended in 0\.3 s"):
            client.wait(one["submission_id"], timeout=0.3)


def test_a_stream_of_states_tells_no_event(world: World, server: Server) -> None:
    ledger = PostgresLedger.connect(world.dsn, tells=True)
    with AiflowClient(server.url, token="any") as client:
        one = client.submit("answer", {"question": "why?"})
        says(world, one, "running")
        task(ledger, one).run(emits(5))
        ledger.close()
        says(world, one, "success")
        url = f"{server.url}{URL}/{one['submission_id']}/events"
        assert "event: event" in httpx.get(url, timeout=PATIENCE).text
        told = httpx.get(url, params={"states": True}, timeout=PATIENCE).text
    assert "event: event" not in told
    assert '"succeeded"' in told
