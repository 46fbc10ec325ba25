"""The client for asyncio: the same methods as the other one, each doing what that does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from airflow_aiflow.client import AiflowClient, AsyncAiflowClient, SubmissionFailedError, SubmitError

ONE = "01930000-0000-7000-8000-000000000001"
OTHER = "01930000-0000-7000-8000-000000000002"
EVENTS = (
    "retry: 2000\n\n"
    'id: 1:1\nevent: event\ndata: {"kind": "tick", "data": {"number": 1}}\n\n'
    'event: state\ndata: {"submission_id": "x", "state": "succeeded"}\n\n'
)


class Airflow:
    """Answer as the API does."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/aiflow/api/v1")
        self.asked.append(f"{request.method} {path}")
        if path == "/submissions" and request.method == "GET":
            second = "cursor" in request.url.params
            rows = [{"submission_id": OTHER if second else ONE}]
            return httpx.Response(200, json={"submissions": rows, "next": None if second else "more"})
        if path == "/submissions":
            failed = json.loads(request.content)["pipeline"] == "failing"
            return httpx.Response(202, json={"submission_id": OTHER if failed else ONE, "state": "queued"})
        if path.endswith("/events"):
            return httpx.Response(200, text=EVENTS, headers={"Content-Type": "text/event-stream"})
        if path.endswith("/result"):
            return httpx.Response(200, json={"answer": "because"})
        state = "failed" if OTHER in path else "succeeded"
        view = {"submission_id": path.split("/")[2][:36], "state": state, "error": None}
        return httpx.Response(200, json=view, headers={"ETag": '"1"'})


def test_both_clients_have_the_same_methods() -> None:
    def methods(client: type) -> set[str]:
        return {name for name in vars(client) if not name.startswith("_")}

    assert {f"a{name}" if name == "close" else name for name in methods(AiflowClient)} == methods(AsyncAiflowClient)


def test_each_method_does_its_work() -> None:
    airflow = Airflow()

    async def play() -> None:
        async with AsyncAiflowClient("http://any", token="t", transport=httpx.MockTransport(airflow)) as client:
            assert (await client.submit("answer", {"question": "why?"}))["submission_id"] == ONE
            assert (await client.get(ONE))["state"] == "succeeded"
            assert [one["submission_id"] async for one in client.list(mine=True)] == [ONE, OTHER]
            for word in ("cancel", "pause", "resume", "retry"):
                await getattr(client, word)(ONE)
                assert airflow.asked[-1] == f"POST /submissions/{ONE}:{word}"
            assert (await client.wait(ONE, timeout=5))["state"] == "succeeded"
            assert await client.result(ONE) == {"answer": "because"}
            assert await client.submit_and_wait("answer") == {"answer": "because"}
            with pytest.raises(SubmissionFailedError, match="failed"):
                await client.submit_and_wait("failing")
            events = [event async for event in client.stream(ONE)]
            assert [(event.name, event.cursor) for event in events] == [("event", "1:1"), ("state", None)]
            with pytest.raises(ValueError, match="badly formed"):
                await client.get("../secret")

    asyncio.run(play())


def test_who_leaves_a_stream_gives_its_connection_back() -> None:
    closed: list[bool] = []

    class Body(httpx.SyncByteStream):
        def __iter__(self) -> Any:
            yield EVENTS.encode()

        def close(self) -> None:
            closed.append(True)

    async def play() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Body()))
        async with AsyncAiflowClient("http://any", token="t", transport=transport) as client:
            events: Any = client.stream(ONE)
            await anext(events)
            await events.aclose()
            assert closed == [True]

    asyncio.run(play())


def test_a_refusal_is_raised_where_it_is_awaited() -> None:
    problem = {"title": "Not Found", "detail": "there is no such submission"}

    async def play() -> None:
        refuses = httpx.MockTransport(lambda _: httpx.Response(404, json=problem))
        async with AsyncAiflowClient("http://any", token="t", transport=refuses) as client:
            for refused in (client.get(ONE), client.result(ONE), client.cancel(ONE), anext(client.stream(ONE))):
                with pytest.raises(SubmitError, match="404: there is no such submission"):
                    await refused

    asyncio.run(play())
