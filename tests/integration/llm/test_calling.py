"""Where and how a caller may be called: connections, fallbacks, threads, loops, signals, forks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from airflow_aiflow.exceptions import (
    AiflowConfigError,
    FlowOptionError,
    ModelError,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm import pydantic_ai_caller
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from tests.integration.llm.conftest import Connect
from tests.integration.llm.scripted_model import ScriptedModel, json_reply, text_reply

#: Seconds that no call of these tests needs, on the slowest machine.
SOON = 45.0

PROMPT = "What does the tenant of the house at the lake owe?"


def fallbacks(**options: Any) -> LlmRequest:
    return LlmRequest(PROMPT, llm_conn_id="first", timeout=20, **options)


# --- fallbacks ---


def test_the_next_connection_is_asked_where_the_first_was_not_reached(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    connect("first", nobody, "openai-chat:gpt-5-mini")
    connect("second", scripted.base_url, "openai:gpt-5-mini")
    answer = caller.call(fallbacks(fallback_conn_ids=("second",)))
    assert (answer.value, answer.conn_id, answer.usage.model) == ("fine", "second", "gpt-5-mini")
    assert "connection 'first' can't be reached" in caplog.text
    assert PROMPT not in caplog.text


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_an_answer_that_serves_nothing_leads_on(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, stand_in: ModelService, status: int
) -> None:
    connect("first", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    connect("second", scripted.base_url, "openai-chat:gpt-5-mini")
    stand_in.set_faults(Fault("status", status=status))
    assert caller.call(fallbacks(fallback_conn_ids=("second",))).value == "fine"


@pytest.mark.parametrize("fault", [Fault("cut"), Fault("truncate")], ids=lambda fault: fault.kind)
def test_an_answer_that_broke_off_does_not(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, stand_in: ModelService, fault: Fault
) -> None:
    """The first may have been billed: paying a second one is the task's decision."""
    connect("first", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    connect("second", scripted.base_url, "openai-chat:gpt-5-mini")
    stand_in.set_faults(fault)
    with pytest.raises(ModelIncompleteError):
        caller.call(fallbacks(fallback_conn_ids=("second",)))
    assert scripted.asked == []


def test_the_deadline_is_over_all_connections(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, stand_in: ModelService
) -> None:
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    connect("second", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    caller.call(fallbacks(fallback_conn_ids=("second",)))
    scripted.answer = lambda asked: json_reply({"error": {"message": "no"}}, 500)
    stand_in.set_faults(Fault("silent"))
    began = time.monotonic()
    with pytest.raises(ModelTimeoutError, match="connection 'second'"):
        caller.call(LlmRequest(PROMPT, llm_conn_id="first", fallback_conn_ids=("second",), timeout=1))
    assert time.monotonic() - began < SOON


def test_the_connection_names_its_own_fallbacks_and_the_call_may_refuse_them(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, nobody: str
) -> None:
    connect("first", nobody, "openai-chat:gpt-5-mini", fallback_conn_ids=["second", " "])
    connect("second", scripted.base_url, "openai-chat:gpt-5-mini")
    assert caller.call(fallbacks()).conn_id == "second"
    with pytest.raises(ModelUnavailableError):
        caller.call(fallbacks(fallback_conn_ids=()))


def test_when_all_fail_a_later_try_decides(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, stand_in: ModelService
) -> None:
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    connect("second", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    scripted.answer = lambda asked: json_reply({"error": {"message": "bad key"}}, 401)
    stand_in.set_faults(Fault("status", status=429, retry_after="9"))
    with pytest.raises(ModelUnavailableError) as caught:
        caller.call(fallbacks(fallback_conn_ids=("second",)))
    assert caught.value.retry_after == 9
    assert any("bad key" in note for note in caught.value.__notes__)


# --- connections ---


def test_connections_that_can_not_be_used_say_what_to_do(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_WEB", json.dumps({"conn_type": "http", "host": "x", "password": "hunter2-hunter2"})
    )
    connect("modelless", scripted.base_url, "")
    connect("unknown_vendor", scripted.base_url, "nobody:gpt")
    connect("looped", scripted.base_url, "openai-chat:gpt-5-mini", fallback_conn_ids=["looped"])
    expected = {
        "not_there": r"not_there.*isn't defined.*airflow connections add",
        "web": "has type 'http'",
        "modelless": "No model specified",
        "unknown_vendor": "'nobody' is not a provider",
        "looped": "lists the primary connection",
    }
    for conn_id, message in expected.items():
        with pytest.raises(AiflowConfigError, match=message) as caught:
            caller.call(LlmRequest(PROMPT, llm_conn_id=conn_id))
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert scripted.asked == []


def test_an_option_that_the_library_refuses_is_an_error_before_the_call(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    with pytest.raises(FlowOptionError):
        caller.call(fallbacks(output_type=[]))
    assert scripted.asked == []


def test_a_key_that_was_changed_is_read_again(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    good = "sk-new-0123456789"
    scripted.answer = lambda asked: (
        text_reply(asked, "in")
        if asked.headers["authorization"] == f"Bearer {good}"
        else json_reply({"error": {"message": "unknown key"}}, 401)
    )
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini", password="sk-old-0123456789")
    with pytest.raises(ModelRequestError):
        caller.call(fallbacks())
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini", password=good)
    assert caller.call(fallbacks()).value == "in"


def test_a_connection_is_read_once_for_all_callers_of_a_process(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, nobody: str
) -> None:
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    assert caller.call(fallbacks()).value == "fine"
    connect("first", nobody, "openai-chat:gpt-5-mini")
    assert PydanticAICaller().call(fallbacks()).value == "fine"
    caller.close()
    with pytest.raises(ModelUnavailableError):
        caller.call(fallbacks())


# --- secrets ---


class Risk(BaseModel):
    risk: int


KEY = "sk-SECRET-0123456789"


@pytest.mark.parametrize(
    "reply",
    [
        lambda asked: json_reply({"error": {"message": f"bad key {asked.headers['authorization']}"}}, 401),
        lambda asked: json_reply({"error": {"message": f"can't serve {PROMPT!r}", "param": PROMPT}}, 400),
        lambda asked: json_reply({"error": f"down while serving {asked.headers['authorization']}: {PROMPT}"}, 500),
        lambda asked: text_reply(asked, '{"risk": "ANSWER"}'),
    ],
    ids=["key", "prompt", "both", "answer"],
)
def test_errors_show_neither_key_nor_prompt_nor_answer(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, wire: str, reply: Any
) -> None:
    scripted.answer = reply
    connect("first", scripted.base_url, f"{wire}:gpt-5-mini", password=KEY)
    request = fallbacks(output_type=Risk)
    with pytest.raises(ModelError) as caught:
        caller.call(request)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(request)
    assert KEY not in shown
    assert PROMPT not in shown
    assert "ANSWER" not in shown
    if not isinstance(caught.value, ModelOutputError):
        assert caught.value.__cause__ is not None


# --- threads, loops, signals, forks ---


def test_a_running_loop_is_no_obstacle(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel) -> None:
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")

    async def inside() -> Any:
        return caller.call(fallbacks()).value

    assert asyncio.run(inside()) == "fine"
    assert asyncio.run(inside()) == "fine", "and a second loop finds the clients usable"


class Interrupted(BaseException):
    """Be raised by the signal, as the runtime's deadline is."""


def test_a_signal_ends_the_wait_at_once(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService, scripted: ScriptedModel
) -> None:
    connect("first", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    connect("second", scripted.base_url, "openai-chat:gpt-5-mini")
    caller.call(fallbacks())
    stand_in.set_faults(Fault("silent"))
    before = len(stand_in.requests())
    main = threading.main_thread().ident
    assert main is not None

    def ring() -> None:
        while len(stand_in.requests()) == before:
            threading.Event().wait(0.01)
        signal.pthread_kill(main, signal.SIGUSR1)

    def interrupt(*_: object) -> None:
        raise Interrupted

    former = signal.signal(signal.SIGUSR1, interrupt)
    bell = threading.Thread(target=ring)
    try:
        began = time.monotonic()
        bell.start()
        with pytest.raises(Interrupted):
            caller.call(LlmRequest(PROMPT, llm_conn_id="first", timeout=600))
        assert time.monotonic() - began < SOON
    finally:
        bell.join()
        signal.signal(signal.SIGUSR1, former)
    assert caller.call(LlmRequest(PROMPT, llm_conn_id="second")).value == "fine"


def test_a_call_inside_a_call_is_refused(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel) -> None:
    class Nested(BaseModel):
        risk: int

        @field_validator("risk")
        @classmethod
        def second_opinion(cls, risk: int) -> int:
            caller.call(fallbacks())
            return risk

    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    scripted.answer = lambda asked: text_reply(asked, '{"risk": 1}')
    with pytest.raises(RuntimeError, match="inside another model call"):
        caller.call(fallbacks(output_type=Nested))


def test_a_validator_that_never_ends_does_not_hold_the_task(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()

    class Stuck(BaseModel):
        risk: int

        @field_validator("risk")
        @classmethod
        def wait(cls, risk: int) -> int:
            let_go.wait(60)
            return risk

    monkeypatch.setattr(pydantic_ai_caller, "LOOP_GRACE", 0.2)
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    caller.call(fallbacks())
    scripted.answer = lambda asked: text_reply(asked, '{"risk": 1}')
    try:
        with pytest.raises(ModelTimeoutError, match="holds the thread"):
            caller.call(LlmRequest(PROMPT, llm_conn_id="first", output_type=Stuck, timeout=4))
    finally:
        let_go.set()


def test_closing_ends_calls_in_flight_and_the_thread(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService
) -> None:
    connect("first", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    stand_in.set_faults(Fault("silent"))
    before = len(stand_in.requests())
    caught: list[BaseException] = []

    def call() -> None:
        try:
            caller.call(fallbacks())
        except ModelError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while len(stand_in.requests()) == before:
        threading.Event().wait(0.01)
    caller.close()
    thread.join(20)
    assert [type(error) for error in caught] == [ModelIncompleteError]
    assert [one.name for one in threading.enumerate() if one.name == "aiflow-models"] == []


def in_child(work: Callable[[], bool]) -> int:
    """Run something in a forked child and give its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_clients_of_its_own(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    connect("first", scripted.base_url, "openai-chat:gpt-5-mini")
    assert caller.call(fallbacks()).value == "fine"
    assert in_child(lambda: caller.call(fallbacks()).value == "fine") == 0
    assert caller.call(fallbacks()).value == "fine", "and its parent's still work"


# --- streams ---


def test_a_stream_gives_its_text_as_it_comes(
    caller: PydanticAICaller, connect: Connect, stand_in: ModelService, wire: str
) -> None:
    connect("first", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    pieces: list[str] = []
    text = "The tenant pays ninety euros each month. The landlord keeps the roof in good repair at all times."
    answer = caller.call(LlmRequest(text, llm_conn_id="first", stream=True, on_text=pieces.append))
    assert len(pieces) > 1
    assert "".join(pieces) == answer.value
    assert answer.usage.tokens_out > 0
    assert answer.value == caller.call(LlmRequest(text, llm_conn_id="first")).value
