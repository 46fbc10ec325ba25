"""The stand-in model server, through the client library that tasks use, and its faults, as that client meets them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService

PROMPT = (
    "Assess this contract.\n\nLease\n\nThe tenant pays ninety euros on the first day of each month. "
    "The landlord keeps the roof in good repair at all times. This is a high risk."
)
ANSWER = (
    "The tenant pays ninety euros on the first day of each month. "
    "The landlord keeps the roof in good repair at all times."
)
MODELS = [OpenAIChatModel, OpenAIResponsesModel]


class Assessment(BaseModel):
    title: str
    risk: Literal["low", "medium", "high"]
    score: float = Field(ge=0, le=1)
    clauses: list[str] = Field(min_length=1, max_length=3)


def client(service: ModelService, *, timeout: float = 10, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(base_url=service.base_url, api_key=key or service.api_key, max_retries=0, timeout=timeout)


def ask(service: ModelService, prompt: str = PROMPT, *, timeout: float = 10, **options: Any) -> Any:
    messages: Any = [{"role": "user", "content": prompt}]
    return client(service, timeout=timeout).chat.completions.create(model="stand-in", messages=messages, **options)


def respond(service: ModelService, **options: Any) -> Any:
    return client(service).responses.create(model="stand-in", input=PROMPT, **options)


def connected(service: ModelService) -> socket.socket:
    """Send a request by hand."""
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    body = b'{"model": "stand-in", "messages": [{"role": "user", "content": "Hi."}]}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {service.api_key}\r\n"
    raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return raw


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("output", [str, Assessment, NativeOutput(Assessment)], ids=["text", "tool", "native"])
def test_answers_about_the_text(model_service: ModelService, kind: Any, output: Any) -> None:
    model = kind("stand-in", provider=OpenAIProvider(base_url=model_service.base_url, api_key=model_service.api_key))
    agent: Agent[None, Any] = Agent(model, output_type=output)
    whole = agent.run_sync(PROMPT)

    async def stream() -> Any:
        async with agent.run_stream(PROMPT) as result:
            return await result.get_output()

    assert asyncio.run(stream()) == whole.output, "streamed and whole answers are the same"
    if output is str:
        assert whole.output == ANSWER
    else:
        assert whole.output.title == "Lease"
        assert whole.output.risk == "high"
    assert whole.usage.input_tokens > 40
    assert whole.usage.output_tokens > 20
    requests = model_service.requests()
    assert len({request.id for request in requests}) == 2
    assert all(request.answered and request.fields["model"] == "stand-in" for request in requests)


@pytest.mark.parametrize("kind", MODELS)
def test_an_agent_calls_its_tools_and_ends(model_service: ModelService, kind: Any) -> None:
    model = kind("stand-in", provider=OpenAIProvider(base_url=model_service.base_url, api_key=model_service.api_key))
    called = []

    def look_up(name: str) -> str:
        called.append(name)
        return "found"

    def charge(cents: int) -> str:
        called.append(str(cents))
        return "charged"

    result = Agent(model, output_type=Assessment, tools=[look_up, charge]).run_sync(PROMPT)
    assert len(called) == 2
    assert result.output.risk == "high"
    assert len(model_service.requests()) == 3


def test_equal_requests_have_equal_digests_and_different_ids(model_service: ModelService) -> None:
    assert ask(model_service).id != ask(model_service).id
    ask(model_service, "Something else.")
    first, second, third = model_service.requests()
    assert first.fields["digest"] == second.fields["digest"] != third.fields["digest"]


def test_lists_its_model_and_takes_idempotency_keys(model_service: ModelService) -> None:
    assert [model.id for model in client(model_service).models.list()] == ["stand-in"]
    ask(model_service, extra_headers={"Idempotency-Key": "af_1"})
    assert model_service.requests()[0].fields["idempotency_key"] == "af_1"


def test_a_wrong_key_is_refused_and_not_counted(model_service: ModelService) -> None:
    with pytest.raises(openai.AuthenticationError):
        client(model_service, key="wrong").models.list()
    assert model_service.requests() == []


def test_a_senseless_request_is_refused(model_service: ModelService) -> None:
    with pytest.raises(openai.BadRequestError, match="'messages' is missing or empty"):
        client(model_service).chat.completions.create(model="stand-in", messages=[])


def test_many_at_once(model_service: ModelService) -> None:
    async def all_of_them() -> list[str]:
        provider = OpenAIProvider(base_url=model_service.base_url, api_key=model_service.api_key)
        agent = Agent(OpenAIChatModel("stand-in", provider=provider))
        results = await asyncio.gather(*(agent.run(f"Page {number} of the contract.") for number in range(40)))
        return [result.output for result in results]

    assert asyncio.run(all_of_them()) == [f"Page {number} of the contract." for number in range(40)]
    assert len(model_service.requests()) == 40


def test_429_with_seconds_with_a_date_and_without(model_service: ModelService) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    model_service.set_faults(
        Fault("status", first=1, status=429, retry_after="7"),
        Fault("status", first=1, status=429, retry_after=date),
        Fault("status", first=1, status=429),
    )
    seen = []
    for _ in range(3):
        with pytest.raises(openai.RateLimitError) as refused:
            ask(model_service)
        seen.append(refused.value.response.headers.get("retry-after"))
    assert seen == ["7", date, None]
    assert ask(model_service).choices[0].message.content == ANSWER
    assert [request.status for request in model_service.requests()] == [429, 429, 429, 200]


def test_500(model_service: ModelService) -> None:
    model_service.set_faults(Fault("status"))
    with pytest.raises(openai.InternalServerError):
        ask(model_service)


def test_a_cut_after_acceptance_is_counted_and_has_no_answer(model_service: ModelService) -> None:
    model_service.set_faults(Fault("cut"))
    with pytest.raises(openai.APIConnectionError) as cut:
        ask(model_service)
    assert not isinstance(cut.value, openai.APITimeoutError)
    (request,) = model_service.requests()
    assert (request.fault, request.status) == ("cut", None)


def test_silence_lasts_until_the_client_leaves(model_service: ModelService) -> None:
    model_service.set_faults(Fault("silent", first=1))
    with pytest.raises(openai.APITimeoutError):
        ask(model_service, timeout=0.5)
    assert ask(model_service).choices[0].message.content == ANSWER
    assert [request.status for request in model_service.requests()] == [None, 200]


def test_a_drip_outlives_a_read_timeout(model_service: ModelService) -> None:
    """Every byte comes within the time-out of a read, so only a total deadline ends the call."""
    model_service.set_faults(Fault("drip", seconds=0.2))
    with connected(model_service) as raw:
        raw.settimeout(0.6)
        deadline = time.monotonic() + 2
        received = b""
        while time.monotonic() < deadline:
            received += raw.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert 5 <= len(body) <= 11
    assert model_service.requests()[0].status is None


def test_a_delay_delays(model_service: ModelService) -> None:
    model_service.set_faults(Fault("delay", seconds=0.3))
    before = time.monotonic()
    assert ask(model_service).choices[0].message.content == ANSWER
    assert time.monotonic() - before >= 0.3


def test_a_truncated_body_is_no_answer(model_service: ModelService) -> None:
    model_service.set_faults(Fault("truncate"))
    with pytest.raises(openai.APIConnectionError):
        ask(model_service)


def test_a_truncated_stream_breaks(model_service: ModelService) -> None:
    model_service.set_faults(Fault("truncate"))
    with pytest.raises(openai.APIConnectionError):
        list(ask(model_service, stream=True))


def test_a_stream_without_its_end_looks_whole_to_the_socket(model_service: ModelService) -> None:
    model_service.set_faults(Fault("no_end"))
    chunks = list(ask(model_service, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == []
    events = [event.type for event in respond(model_service, stream=True)]
    assert "response.output_text.delta" in events
    assert "response.completed" not in events
    model_service.set_faults()
    assert [event.type for event in respond(model_service, stream=True)][-1] == "response.completed"
    assert [chunk.choices[0].finish_reason for chunk in ask(model_service, stream=True)][-1] == "stop"


def test_counts_survive_a_kill(model_service: ModelService) -> None:
    model_service.set_faults(Fault("silent"))
    with connected(model_service):
        deadline = time.monotonic() + 10
        while not model_service.requests():
            assert time.monotonic() < deadline
        os.kill(model_service.pid, signal.SIGKILL)
    model_service.stop()
    model_service.set_faults()
    model_service.start()
    ask(model_service)
    assert [request.status for request in model_service.requests()] == [None, 200]


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -4\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_bytes_that_are_no_request_are_refused(model_service: ModelService, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", model_service.port), timeout=10) as connection:
        connection.sendall(raw)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
