"""How the client waits where the stream is bad: by long polls, with pauses, and not beyond its time."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest

from airflow_aiflow.client import AiflowClient, SubmitError

ID = "01a22c26-3d85-7f2d-8154-c61e540ed270"
RUNNING = 'event: state\ndata: {"state": "running"}\n\n'
END = 'event: state\ndata: {"state": "succeeded"}\n\n'


class Airflow:
    """Answer as a server does, or as a bad one: its streams and its states, one after the other, the last for ever."""

    def __init__(self, streams: Sequence[str | int | Exception], states: Sequence[str | int | Exception]) -> None:
        self.now = 0.0
        self._streams, self._states = list(streams), list(states)
        self.asked: list[str] = []
        self.polls: list[float] = []

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def client(self) -> AiflowClient:
        return AiflowClient(
            "http://any", token="t", transport=httpx.MockTransport(self), wait=self.wait, clock=lambda: self.now
        )

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert len(self.asked) < 1_000, "it asks without a pause"
        stream = request.url.path.endswith("/events")
        self.asked.append("events" if stream else "state")
        if not stream:
            self.polls.append(float(request.url.params["wait"]))
        left = self._streams if stream else self._states
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            return httpx.Response(found, json={})
        return httpx.Response(200, text=found) if stream else httpx.Response(200, json={"state": found})


def test_an_end_that_is_told_is_read_at_once() -> None:
    airflow = Airflow([RUNNING + END], ["succeeded"])
    with airflow.client() as client:
        assert client.wait(ID) == {"state": "succeeded"}
    assert (airflow.asked, airflow.polls, airflow.now) == (["events", "state"], [0.0], 0.0)


@pytest.mark.parametrize("refused", [404, 405, 500, httpx.ReadTimeout("silent")])
def test_where_no_stream_comes_it_is_polled(refused: int | Exception) -> None:
    airflow = Airflow([refused], ["running", "running", "succeeded"])
    with airflow.client() as client:
        client.wait(ID)
    assert airflow.asked == ["events", "state", "state", "state"]
    assert airflow.polls == [20.0] * 3


@pytest.mark.parametrize("broken", [503, 429, RUNNING, "", httpx.ReadError("cut"), httpx.RemoteProtocolError("cut")])
def test_a_stream_that_breaks_is_tried_again_after_a_poll_that_grows(broken: str | int | Exception) -> None:
    airflow = Airflow([broken], ["running"] * 7 + ["succeeded"])
    with airflow.client() as client:
        client.wait(ID)
    assert airflow.asked == ["events", "state"] * 8
    assert airflow.polls == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert airflow.now == sum(airflow.polls[:-1]), "this server answers polls at once"


def test_a_server_that_is_away_for_a_while_is_outlived() -> None:
    away: list[str | int | Exception] = [httpx.ConnectError("refused"), httpx.ConnectError("refused"), 503, 502]
    airflow = Airflow([RUNNING, httpx.ConnectError("refused"), END], [*away, "running", "running", "succeeded"])
    with airflow.client() as client:
        assert client.wait(ID)["state"] == "succeeded"
    assert airflow.asked[-2:] == ["events", "state"]


@pytest.mark.parametrize("stream", [RUNNING, 404, END])
@pytest.mark.parametrize("state", ["running", 503, httpx.ConnectError("refused")])
def test_its_time_is_kept(stream: str | int, state: str | int | Exception) -> None:
    airflow = Airflow([stream], [state])
    with airflow.client() as client, pytest.raises(TimeoutError, match="in 7 s"):
        client.wait(ID, timeout=7)
    assert airflow.now == pytest.approx(7)
    assert max(airflow.polls) <= 7


def test_what_is_not_there_is_told_of() -> None:
    airflow = Airflow([404], [404])
    with airflow.client() as client, pytest.raises(SubmitError, match="404"):
        client.wait(ID, timeout=7)
