"""What a caller makes of a model server that fails, on real sockets, with the requests counted at the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from airflow_aiflow.exceptions import (
    ModelError,
    ModelIncompleteError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from tests.integration.llm.conftest import WIRES, Connect
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, json_reply, text_reply

#: Seconds that no deadline of these tests needs, on the slowest machine; a drip takes longer, silence for ever.
SOON = 45.0

PROMPT = "Lease. The tenant pays ninety euros on the first day of each month. The landlord keeps the roof in repair."


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


FAULTS: list[tuple[Fault, type[ModelError]]] = [
    (Fault("status", status=500), ModelUnavailableError),
    (Fault("status", status=429), ModelUnavailableError),
    (Fault("status", status=503), ModelUnavailableError),
    (Fault("status", status=502), ModelUnavailableError),
    (Fault("status", status=408), ModelUnavailableError),
    (Fault("status", status=400), ModelRequestError),
    (Fault("status", status=404), ModelRequestError),
    (Fault("cut"), ModelIncompleteError),
    (Fault("truncate"), ModelIncompleteError),
    (Fault("no_end"), ModelIncompleteError),
]


@pytest.mark.parametrize(("fault", "error"), FAULTS, ids=lambda one: getattr(one, "kind", ""))
def test_each_call_is_one_request_whatever_comes_back(
    caller: PydanticAICaller,
    connect: Connect,
    stand_in: ModelService,
    wire: str,
    stream: bool,
    fault: Fault,
    error: type[ModelError],
) -> None:
    conn_id = connect("m", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    stand_in.set_faults(fault)
    before = len(stand_in.requests())
    with pytest.raises(ModelError) as caught:
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, timeout=20, stream=stream))
    assert type(caught.value) is error
    assert len(stand_in.requests()) - before == 1
    assert "connection 'm'" in str(caught.value)
    if fault.kind == "status":
        assert getattr(caught.value, "status_code", None) == fault.status


@pytest.mark.parametrize("fault", [Fault("silent"), Fault("drip", seconds=0.2)], ids=lambda fault: fault.kind)
def test_the_deadline_is_over_the_whole_call(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService, wire: str, stream: bool, fault: Fault
) -> None:
    """A time limit of each read, which the client has, never ends a server that sends a byte now and then."""
    conn_id = connect("m", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    stand_in.set_faults(fault)
    caller_warm = LlmRequest("warm", llm_conn_id=conn_id, timeout=0.05)
    with pytest.raises(ModelTimeoutError):
        caller.call(caller_warm)  # loads the client, which takes longer than the deadline below
    before, began = len(stand_in.requests()), time.monotonic()
    with pytest.raises(ModelTimeoutError, match="within 1 s"):
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, timeout=1.0, stream=stream))
    assert 1.0 <= time.monotonic() - began < SOON
    assert len(stand_in.requests()) - before == 1


def test_a_slow_answer_within_the_deadline_counts(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService, wire: str
) -> None:
    conn_id = connect("m", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    stand_in.set_faults(Fault("drip", seconds=0.001))
    answer = caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, timeout=30))
    assert "tenant" in answer.value


def test_a_refused_connection_asked_nobody(caller: PydanticAICaller, connect: Connect, nobody: str, wire: str) -> None:
    conn_id = connect("m", nobody, f"{wire}:stand-in")
    with pytest.raises(ModelUnavailableError, match="can't be reached") as caught:
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, timeout=20))
    assert caught.value.status_code is None
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [("7", 7, 7), ("3600", 3600, 3600), ("0", 0, 0), ("-5", None, None), ("soon", None, None), (None, None, None)],
)
def test_a_wait_that_is_asked_for_is_passed_on(
    caller: PydanticAICaller,
    connect: Connect,
    stand_in: ModelService,
    header: str | None,
    least: float | None,
    most: float | None,
) -> None:
    conn_id = connect("m", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    stand_in.set_faults(Fault("status", status=429, retry_after=header))
    with pytest.raises(ModelUnavailableError) as caught:
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))
    if least is None or most is None:
        assert caught.value.retry_after is None
    else:
        assert caught.value.retry_after is not None
        assert least <= caught.value.retry_after <= most
    assert getattr(caught.value.__cause__, "status_code", None) == 429


def test_a_wait_until_a_date_is_passed_on(caller: PydanticAICaller, connect: Connect, stand_in: ModelService) -> None:
    conn_id = connect("m", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    stand_in.set_faults(Fault("status", status=503, retry_after=until))
    with pytest.raises(ModelUnavailableError) as caught:
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))
    assert caught.value.retry_after is not None
    assert 30 < caught.value.retry_after <= 90


def half(asked: Asked) -> Reply:
    reply = text_reply(asked, "a whole sentence that is cut")
    reply.body = reply.body[: len(reply.body) // 2]
    reply.announced = None
    return reply


def empty(asked: Asked) -> Reply:
    return Reply(b"")


def words(asked: Asked) -> Reply:
    return Reply(b"<html>please log in</html>", content_type="text/html")


def failed_by_the_provider(asked: Asked) -> Reply:
    value = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "in_progress", "output": []}
    usage = {"input_tokens": 1, "output_tokens": 0, "total_tokens": 1}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    text = {"type": "output_text", "text": "half an ans", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": [text]}
    more = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "usage": {**usage, **details}}
    return json_reply({**value, **more, "output": [message]})


@pytest.mark.parametrize("answer", [half, empty, words], ids=lambda answer: answer.__name__)
def test_a_body_that_is_no_whole_answer_is_none(
    caller: PydanticAICaller,
    connect: Connect,
    scripted: ScriptedModel,
    wire: str,
    answer: Callable[[Asked], Reply],
) -> None:
    """The end of the connection ends the body here, so only its content can say that something is missing."""
    scripted.answer = answer
    conn_id = connect("m", scripted.base_url, f"{wire}:gpt-5-mini")
    with pytest.raises(ModelIncompleteError):
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))
    assert len(scripted.asked) == 1


def test_a_response_that_is_still_in_progress_is_none(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    scripted.answer = failed_by_the_provider
    conn_id = connect("m", scripted.base_url, "openai:gpt-5-mini")
    with pytest.raises(ModelIncompleteError, match="without its end"):
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))
    assert len(scripted.asked) == 1


def test_an_author_can_not_switch_the_clients_retries_on(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService
) -> None:
    conn_id = connect("m", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    stand_in.set_faults(Fault("status", status=500))
    before = len(stand_in.requests())
    with pytest.raises(ModelUnavailableError):
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id, model_settings={"max_retries": 5}))
    assert len(stand_in.requests()) - before == 1


@pytest.mark.parametrize("status", [409, 425, 529])
def test_more_ways_of_not_now(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, status: int) -> None:
    scripted.answer = lambda asked: json_reply({"error": {"message": "later"}}, status)
    conn_id = connect("m", scripted.base_url, "openai-chat:gpt-5-mini")
    with pytest.raises(ModelUnavailableError):
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))
    assert len(scripted.asked) == 1


def test_a_used_up_quota_is_no_rate_limit(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel) -> None:
    scripted.answer = lambda asked: json_reply(
        {"error": {"message": "pay first", "type": "insufficient_quota", "code": "insufficient_quota"}}, 429
    )
    conn_id = connect("m", scripted.base_url, "openai-chat:gpt-5-mini")
    with pytest.raises(ModelRequestError, match=r"quota or credit is used up.*pay first"):
        caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))


def test_both_wires_are_tried() -> None:
    """The fixture ``wire`` names them; a third one of this project's promise would need its own faults."""
    assert WIRES == ("openai-chat", "openai")
