"""One request of an agent: what a failure means, which model of a chain is asked, and when an answer is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

from airflow_aiflow.exceptions import (
    AttemptParked,
    ModelIncompleteError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.agent_prints import plain_parameters, plain_settings
from airflow_aiflow.llm.agent_request import AgentCaller, AgentRequest, chained, leaves
from airflow_aiflow.testing import DurableTask

ASKED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    ASKED.clear()


def model(name: str, *ends: Exception | str) -> FunctionModel:
    """Be a model that ends its requests so, in order; the last way stays."""
    left = list(ends)

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(name)
        end = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(end, Exception):
            raise end
        return ModelResponse([TextPart(end)])

    return FunctionModel(ask, model_name=name)


def caller(model: Model, **settings: Any) -> tuple[AgentCaller, AgentRequest]:
    said = ModelRequest([SystemPromptPart("Be a careful helper."), UserPromptPart("The secret prompt of mine")])
    request = AgentRequest(model, [said], settings, ModelRequestParameters(), False)
    return AgentCaller(request, asyncio.run), request


def ask(model: Model, **settings: Any) -> Any:
    called, request = caller(model, **settings)
    return called.call(request.described(None, whole=True)).value["parts"][0]["content"]


NOT_NOW = ModelHTTPError(503, "m", "busy")
REFUSED = ModelHTTPError(400, "m", "The secret prompt of mine is too long")
BROKEN = ModelConnectionError("m", "the peer closed", phase="read")


@pytest.mark.parametrize(
    ("error", "ours"), [(NOT_NOW, ModelUnavailableError), (REFUSED, ModelRequestError), (BROKEN, ModelIncompleteError)]
)
def test_a_failure_is_told_as_what_it_means_for_the_bill(error: Exception, ours: type[Exception]) -> None:
    with pytest.raises(ours) as caught:
        ask(model("a", error))
    assert "secret prompt" not in str(caught.value)


def test_a_silent_model_is_left_at_its_deadline() -> None:
    async def silent(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(ModelTimeoutError, match=r"0\.05 s"):
        ask(FunctionModel(silent), timeout=0.05)


@pytest.mark.parametrize("error", [NOT_NOW, REFUSED])
def test_a_chain_goes_on_where_surely_nothing_was_served(error: Exception) -> None:
    assert ask(chained([model("a", error), model("b", "from b")])) == "from b"
    assert ASKED == ["a", "b"]


def test_a_chain_stops_where_an_answer_may_have_been_billed() -> None:
    with pytest.raises(ModelIncompleteError):
        ask(chained([model("a", BROKEN), model("b", "from b")]))
    assert ASKED == ["a"]


def test_a_chain_that_failed_whole_says_what_a_later_try_can_mend() -> None:
    with pytest.raises(ModelUnavailableError):
        ask(chained([model("a", REFUSED), model("b", NOT_NOW)]))


def test_the_models_behind_a_model_are_found() -> None:
    first, second = model("a", "a"), model("b", "b")
    assert leaves(WrapperModel(chained([first, second]))) == [first, second]
    assert leaves(first) == [first]


def test_the_clients_own_retries_are_off() -> None:
    inner = model("a", "fine")

    class Client:
        max_retries = 2

    inner.client = Client()  # type: ignore[attr-defined]
    ask(WrapperModel(inner))
    assert inner.client.max_retries == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("state", "whole"), [("complete", True), ("suspended", True), ("interrupted", False)])
def test_an_answer_without_its_end_is_none(state: Any, whole: bool) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("half")], state=state)

    if whole:
        assert ask(FunctionModel(answer)) == "half"
    else:
        with pytest.raises(ModelIncompleteError):
            ask(FunctionModel(answer))


def test_a_stream_is_read_to_its_end() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "once "
        yield "upon"

    request = AgentRequest(
        FunctionModel(stream_function=stream),
        [ModelRequest.user_text_prompt("Tell")],
        None,
        ModelRequestParameters(),
        True,
    )
    answer = AgentCaller(request, asyncio.run).call(request.described(None, whole=False))
    assert answer.value["parts"][0]["content"] == "once upon"
    assert answer.usage.tokens_out > 0


def test_settings_of_the_transport_do_not_count_and_others_do() -> None:
    assert plain_settings({"timeout": 3, "max_retries": 1}) == plain_settings(None) == {}
    assert plain_settings({"temperature": 0.5, "stop_sequences": ["a"]}) == {
        "temperature": 0.5,
        "stop_sequences": ["a"],
    }


def test_what_the_model_does_not_read_of_a_tool_does_not_count() -> None:
    from pydantic_ai.tools import ToolDefinition

    def told(**changed: Any) -> dict[str, Any]:
        tool = ToolDefinition(name="a", description="do a", **changed)
        return plain_parameters(ModelRequestParameters(function_tools=[tool], revealed_tool_names={"b", "a", "c"}))

    assert told() == told(metadata={"hook": print}, timeout=3, sequential=True, toolset_id="x", capability_id="y")
    assert told() != told(strict=True)


# --- inside a flow ----------------------------------------------------------------------------------------------------


def run(made: Callable[[], Agent[None, str]], task: DurableTask) -> str:
    return task.run(lambda flow: flow.agent("resolve", made(), "Ticket 1"))


def test_a_model_that_is_busy_is_asked_again_inside_the_attempt() -> None:
    busy = model("a", NOT_NOW, NOT_NOW, "fine")
    assert run(lambda: Agent(busy), DurableTask()) == "fine"
    assert ASKED == ["a"] * 3


def test_a_model_that_asks_for_patience_gets_it_and_the_slot_goes_back() -> None:
    told: Any = ModelHTTPError(429, "m", "slow down", headers={"retry-after": "600"})
    waiting = model("a", told, "fine")
    task = DurableTask()
    with pytest.raises(AttemptParked) as parked:
        run(lambda: Agent(waiting), task)
    assert parked.value.delay >= 600
    task.same_again()
    assert run(lambda: Agent(waiting), task) == "fine"
    assert ASKED == ["a", "a"]


def test_what_broke_off_is_left_to_the_tasks_own_retries() -> None:
    calls = [ToolCallPart("count", {})]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(str(len(messages)))
        if len(messages) == 3 and ASKED.count("3") == 1:
            raise BROKEN
        return ModelResponse(calls if len(messages) == 1 else [TextPart("done")])

    def count() -> int:
        ASKED.append("tool")
        return 1

    task = DurableTask()
    with pytest.raises(ModelIncompleteError):
        run(lambda: Agent(FunctionModel(answer), tools=[count]), task)
    assert run(lambda: Agent(FunctionModel(answer), tools=[count]), task) == "done"
    assert ASKED == ["1", "tool", "3", "3"]
