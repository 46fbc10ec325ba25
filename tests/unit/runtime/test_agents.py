"""Agents of pydantic-ai under a flow: what is recorded, what replays, and what a person is asked."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import Toolset
from pydantic_ai.exceptions import ToolFailed, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturn
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import UsageLimits

from airflow_aiflow import current_flow, effect, step
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    AttemptAsks,
    AttemptParked,
    BudgetExceededError,
    EffectConflictError,
    EffectInDoubtError,
    EffectNotAppliedError,
    PayloadEncodeError,
    StepInputError,
)
from airflow_aiflow.runtime.async_flow import AsyncFlow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.testing import DurableTask, ManualClock

#: What reached the outside, in order: refunds, looks and whatever a test counts.
OUTSIDE: list[Any] = []
#: What the model was asked, by the number of messages.
ASKED: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    OUTSIDE.clear()
    ASKED.clear()


def lookup_order(order_id: int) -> str:
    """Look up an order."""
    OUTSIDE.append(("look", order_id))
    return f"order {order_id}"


@effect(key="refund/{order_id}")
def refund_order(order_id: int, cents: int) -> str:
    """Refund an order."""
    OUTSIDE.append(("refund", order_id, cents))
    return f"refunded {cents}"


@effect(key="refund/{order_id}")
async def refund_async(order_id: int, cents: int) -> str:
    """Refund an order."""
    OUTSIDE.append(("refund", order_id, cents))
    return f"refunded {cents}"


@effect(key="refund/{order_id}", require_approval=True)
def refund_approved(order_id: int, cents: int) -> str:
    """Refund an order."""
    OUTSIDE.append(("refund", order_id, cents))
    return f"refunded {cents}"


@step
def priced(order_id: int) -> int:
    """Give an order's price."""
    OUTSIDE.append(("price", order_id))
    return 100


def call(name: str, call_id: str | None = None, **arguments: Any) -> ToolCallPart:
    part = ToolCallPart(name, arguments)
    if call_id is not None:
        part.tool_call_id = call_id
    return part


Answer = list[ToolCallPart] | str


def scripted(*answers: Answer) -> FunctionModel:
    """Be a model that gives the answers in order, by the place in the conversation; texts end it."""

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(len(messages))
        answer = answers[min(len(messages) // 2, len(answers) - 1)]
        parts = [TextPart(answer)] if isinstance(answer, str) else answer
        return ModelResponse([type(part)(**vars(part)) if isinstance(part, TextPart) else part for part in parts])

    return FunctionModel(ask, model_name="scripted")


REFUND = [call("refund_order", order_id=4711, cents=100)]


def retried(task: DurableTask, body: Callable[[Flow], Any], fails: type[BaseException]) -> Any:
    """Run an attempt that fails after the agent, then its retry."""

    def failing(flow: Flow) -> Any:
        body(flow)
        raise fails

    with pytest.raises(fails):
        task.run(failing)
    return task.run(body)


class Later(Exception):
    """Be a later step's failure."""


def resolve(agent: Agent[Any, Any], prompt: str = "Ticket 1") -> Callable[[Flow], Any]:
    return lambda flow: flow.agent("resolve", agent, prompt)


# --- what replays -----------------------------------------------------------------------------------------------------


def test_a_retry_replays_every_request_and_every_tool() -> None:
    agent = Agent(scripted([call("lookup_order", order_id=4711)], REFUND, "done"), tools=[lookup_order, refund_order])
    task = DurableTask()
    assert retried(task, resolve(agent), Later) == "done"
    assert ASKED == [1, 3, 5]
    assert OUTSIDE == [("look", 4711), ("refund", 4711, 100)]


def test_a_run_that_fails_in_the_middle_goes_on_there() -> None:
    def fails_once() -> str:
        OUTSIDE.append("tried")
        if OUTSIDE.count("tried") == 1:
            raise Later
        return "found"

    agent = Agent(scripted(REFUND, [call("fails_once")], "done"), tools=[fails_once, refund_order])
    task = DurableTask()
    with pytest.raises(Later):
        task.run(resolve(agent))
    assert task.run(resolve(agent)) == "done"
    assert OUTSIDE == [("refund", 4711, 100), "tried", "tried"]
    assert ASKED == [1, 3, 5]


def test_a_second_call_in_the_same_attempt_finds_what_a_failed_one_recorded() -> None:
    def fails_once() -> str:
        OUTSIDE.append("tried")
        if OUTSIDE.count("tried") == 1:
            raise Later
        return "found"

    agent = Agent(scripted([call("lookup_order", order_id=1)], [call("fails_once")], "done"), tools=[lookup_order])
    agent.tool_plain(fails_once)

    def body(flow: Flow) -> Any:
        with pytest.raises(Later):
            flow.agent("resolve", agent, "Ticket 1")
        return flow.agent("resolve", agent, "Ticket 1")

    assert DurableTask().run(body) == "done"
    assert ASKED == [1, 3, 5]
    assert OUTSIDE == [("look", 1), "tried", "tried"]


def test_a_changed_prompt_runs_anew_from_the_first_changed_request_and_refunds_once() -> None:
    task = DurableTask()

    def body(flow: Flow) -> Any:
        model = scripted([call("lookup_order", order_id=4711)], REFUND, "done")
        text = "Be kind." if flow.attempt == 1 else "Be very kind."
        flow.agent("first", Agent(scripted("unchanged")), "Hello")
        return flow.agent("resolve", Agent(model, instructions=text, tools=[lookup_order, refund_order]), "Ticket 1")

    retried(task, body, Later)
    assert ASKED == [1, 1, 3, 5, 1, 3, 5], "the first agent is asked once"
    assert OUTSIDE == [("look", 4711), ("refund", 4711, 100), ("look", 4711)]
    assert any("changed: " in line for line in task.host.lines)


def test_a_tool_that_is_added_is_another_request() -> None:
    task = DurableTask()

    def body(flow: Flow) -> Any:
        tools: list[Any] = [refund_order] if flow.attempt == 1 else [refund_order, lookup_order]
        return flow.agent("resolve", Agent(scripted(REFUND, "done"), tools=tools), "Ticket 1")

    retried(task, body, Later)
    assert len(ASKED) == 4
    assert len(OUTSIDE) == 1


def test_what_changes_in_the_middle_runs_anew_from_there() -> None:
    """A tool whose recorded result is the same leads on, one whose code says something else is not asked."""
    task = DurableTask()

    def body(flow: Flow) -> Any:
        agent: Agent[None, str] = Agent(scripted([call("lookup_order", order_id=1)], "done"), tools=[lookup_order])

        @agent.instructions
        def told(ctx: RunContext[None]) -> str:
            return "first" if len(ctx.messages) < 2 else f"attempt {flow.attempt}"

        return flow.agent("resolve", agent, "Ticket 1")

    retried(task, body, Later)
    assert ASKED == [1, 3, 3]
    assert OUTSIDE == [("look", 1)]


def test_times_and_ids_of_a_conversation_do_not_count() -> None:
    """The ids by which a provider names calls are new in each answer, those of a run in each attempt."""
    from airflow_aiflow.llm.agent_prints import Conversation

    def told(call_id: str, day: int) -> bytes:
        from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart

        when = datetime(2026, 1, day, tzinfo=UTC)
        messages: list[ModelMessage] = [
            ModelRequest([UserPromptPart("hi", timestamp=when)], timestamp=when, run_id=f"run {day}"),
            ModelResponse([call("a", call_id, x=1)], timestamp=when, provider_response_id=f"r{day}"),
            ModelRequest([ToolReturnPart("a", "A", call_id, timestamp=when)], run_id=f"run {day}"),
        ]
        return Conversation().digest(messages)

    assert told("call_1", 1) == told("call_2", 2)


def test_a_history_is_hashed_as_it_grows_and_anew_where_it_changed() -> None:
    from pydantic_ai.messages import ModelRequest

    from airflow_aiflow.llm.agent_prints import Conversation

    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("a"), ModelResponse([TextPart("b")])]
    grown = Conversation()
    first = grown.digest(messages)
    messages.append(ModelRequest.user_text_prompt("c"))
    assert grown.digest(messages) == Conversation().digest(messages) != first
    messages[1] = ModelResponse([TextPart("other")])
    assert grown.digest(messages) == Conversation().digest(messages)
    assert grown.digest(messages[:1]) == Conversation().digest(messages[:1])


# --- marked tools, whichever way they come ----------------------------------------------------------------------------


def by_list(tool: Any) -> Agent[None, str]:
    return Agent(scripted(REFUND, "done"), tools=[tool])


def by_decorator(tool: Any) -> Agent[None, str]:
    agent: Agent[None, str] = Agent(scripted(REFUND, "done"))
    agent.tool_plain(name="refund_order")(tool)
    return agent


def by_toolset(tool: Any) -> Agent[None, str]:
    return Agent(scripted([call("shop_refund_order", order_id=4711, cents=100)], "done"), toolsets=[shop(tool)])


def shop(tool: Any) -> Any:
    return FunctionToolset([tool]).prefixed("shop")


def by_capability(tool: Any) -> Agent[None, str]:
    called = [call("shop_refund_order", order_id=4711, cents=100)]
    return Agent(scripted(called, "done"), capabilities=[Toolset(shop(tool))])


def by_function(tool: Any) -> Agent[None, str]:
    async def refund(order_id: int, cents: int) -> str:
        """Refund."""
        return str(await asyncio.to_thread(tool, order_id, cents))

    return Agent(scripted([call("refund", order_id=4711, cents=100)], "done"), tools=[refund])


def by_sub_agent(tool: Any) -> Agent[None, str]:
    async def ask_refunds(what: str) -> str:
        """Ask who refunds."""
        return (await by_list(tool).run(what)).output

    return Agent(scripted([call("ask_refunds", what="refund 4711")], "done"), tools=[ask_refunds])


def by_flow_agent(tool: Any) -> Agent[None, str]:
    async def ask_refunds(what: str) -> str:
        """Ask who refunds."""
        flow: Any = current_flow()
        return str(await flow.agent("refunds", by_list(tool), what))

    return Agent(scripted([call("ask_refunds", what="refund 4711")], "done"), tools=[ask_refunds])


WAYS = [by_list, by_decorator, by_toolset, by_capability, by_function, by_sub_agent, by_flow_agent]


@pytest.mark.parametrize("way", WAYS)
def test_a_marked_tool_is_an_effect_with_a_key_whichever_way_it_came(way: Callable[[Any], Agent[None, str]]) -> None:
    task = DurableTask()
    body = resolve(way(refund_order))
    assert retried(task, body, Later) == "done"
    assert OUTSIDE == [("refund", 4711, 100)]
    asked = len(ASKED)
    other = DurableTask(ledger=task.ledger, run_id="another")
    assert other.run(body) == "done"
    assert OUTSIDE == [("refund", 4711, 100)], "the business key holds in another run"
    assert len(ASKED) == 2 * asked, "whose requests are its own"


@pytest.mark.parametrize("way", WAYS)
def test_a_marked_tool_waits_for_a_person_whichever_way_it_came(way: Callable[[Any], Agent[None, str]]) -> None:
    task = DurableTask()
    agent = way(effect(key="refund/{order_id}", require_approval=True)(refund_order.fn))
    with pytest.raises(AttemptAsks):
        task.run(resolve(agent))
    assert OUTSIDE == []
    task.answer("Approve")
    assert task.run(resolve(agent)) == "done"
    assert OUTSIDE == [("refund", 4711, 100)]


def test_an_async_marked_tool_works_in_a_task_that_does_not_wait() -> None:
    agent = Agent(scripted([call("refund_async", order_id=1, cents=2)], "done"), tools=[refund_async])
    assert retried(DurableTask(), resolve(agent), Later) == "done"
    assert OUTSIDE == [("refund", 1, 2)]


def test_a_marked_step_is_recorded_once() -> None:
    agent = Agent(scripted([call("priced", order_id=1)], "done"), tools=[priced])
    task = DurableTask()
    retried(task, resolve(agent), Later)
    assert OUTSIDE == [("price", 1)]
    told = [line.partition("]")[2].split()[:2] for line in task.host.lines if "priced" in line]
    assert told == [["priced", "ran"], ["priced", "replayed"]]


def test_another_call_id_is_the_same_refund_and_another_amount_a_conflict() -> None:
    def answers(call_id: str, cents: int) -> Agent[None, str]:
        tool_call = call("refund_order", call_id, order_id=4711, cents=cents)
        return Agent(scripted([tool_call], "done"), tools=[refund_order])

    first = DurableTask()
    first.run(resolve(answers("call_a", 100)))
    DurableTask(ledger=first.ledger, run_id="2").run(resolve(answers("call_b", 100)))
    with pytest.raises(EffectConflictError):
        DurableTask(ledger=first.ledger, run_id="3").run(resolve(answers("call_c", 200)))
    assert OUTSIDE == [("refund", 4711, 100)]


def test_a_lost_reply_of_a_tool_is_in_doubt_and_never_sent_again() -> None:
    @effect(key="refund/{order_id}", on_in_doubt="hold")
    def lost(order_id: int) -> str:
        OUTSIDE.append("sent")
        raise ConnectionResetError

    agent = Agent(scripted([call("lost", order_id=1)], "done"), tools=[lost])
    task = DurableTask()
    for _ in range(2):
        with pytest.raises(EffectInDoubtError):
            task.run(resolve(agent))
    assert OUTSIDE == ["sent"]
    assert ASKED == [1]


def test_a_released_refund_is_made_again_by_a_later_attempt() -> None:
    agent = Agent(scripted(REFUND, "done"), tools=[refund_order])
    task = DurableTask()
    with pytest.raises(Later):
        task.run(lambda flow: (flow.agent("resolve", agent, "Ticket 1"), flow.step("later", fail)))
    [record] = task.inbox.effects()
    assert task.inbox.release(record.number, by="ann", note="it came back").counts
    task.run(resolve(agent))
    assert OUTSIDE == [("refund", 4711, 100)] * 2


def fail() -> None:
    raise Later


# --- approval ---------------------------------------------------------------------------------------------------------


def test_a_declined_call_is_told_to_the_model_and_a_clear_asks_anew() -> None:
    said: list[Any] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([call("refund_approved", order_id=4711, cents=100)])
        said.append(messages[-1].parts[0])
        return ModelResponse([TextPart("sorry")])

    agent = Agent(FunctionModel(ask), tools=[refund_approved])
    task = DurableTask()
    with pytest.raises(AttemptAsks):
        task.run(resolve(agent))
    task.answer("Reject", note="too much")
    assert task.run(resolve(agent)) == "sorry"
    assert OUTSIDE == []
    assert said[0].outcome == "failed"
    assert said[0].content == "A person declined this call. Nothing was done. too much"
    task.retried()
    task.cleared()
    with pytest.raises(AttemptAsks):
        task.run(resolve(agent))
    task.answer("Approve")
    task.run(resolve(agent))
    assert OUTSIDE == [("refund", 4711, 100)]


def test_two_calls_side_by_side_are_asked_about_one_after_the_other() -> None:
    calls = [call("refund_approved", order_id=number, cents=5) for number in (1, 2)]
    agent = Agent(scripted([*calls, call("lookup_order", order_id=3)], "done"), tools=[refund_approved, lookup_order])
    task = DurableTask()
    for _ in range(2):
        with pytest.raises(AttemptAsks):
            task.run(resolve(agent))
        task.answer("Approve")
    assert task.run(resolve(agent)) == "done"
    assert sorted(OUTSIDE) == [("look", 3), ("refund", 1, 5), ("refund", 2, 5)]
    assert ASKED == [1, 3]


# --- side by side -----------------------------------------------------------------------------------------------------


def test_tools_side_by_side_keep_their_own_results_in_any_order() -> None:
    """Equal calls too: in the first attempt the second one ends first."""
    together = threading.Barrier(2)
    order: list[int] = []
    lock = threading.Lock()

    def draw(what: str) -> str:
        OUTSIDE.append("drawn")
        together.wait(10)
        with lock:
            order.append(len(order))
            return f"ticket {len(order)}"

    results: list[list[Any]] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(len(messages))
        if len(messages) == 1:
            return ModelResponse([call("draw", "same", what="a"), call("draw", "other", what="a")])
        return ModelResponse([TextPart(repr([part.content for part in messages[-1].parts]))])  # type: ignore[union-attr]

    agent = Agent(FunctionModel(ask), tools=[draw])
    task = DurableTask()

    def body(flow: Flow) -> Any:
        output = flow.agent("resolve", agent, "Ticket 1")
        results.append([output])
        return output

    retried(task, body, Later)
    assert results[0] == results[1]
    assert OUTSIDE == ["drawn", "drawn"]
    assert ASKED == [1, 3]


AT_WORK, RAISED = threading.Event(), threading.Event()


@effect(key="refund/{order_id}")
def slow_refund(order_id: int) -> str:
    """Refund slowly."""
    AT_WORK.set()
    assert RAISED.wait(10)
    OUTSIDE.append("refunded")
    return "refunded"


def test_a_sibling_that_raises_waits_for_the_refund_in_flight() -> None:
    AT_WORK.clear()
    RAISED.clear()

    def sibling() -> str:
        if OUTSIDE:
            return "fine"
        assert AT_WORK.wait(10)
        RAISED.set()
        raise Later

    agent = Agent(scripted([call("slow_refund", order_id=1), call("sibling")], "done"), tools=[slow_refund, sibling])
    task = DurableTask()
    with pytest.raises(Later):
        task.run(resolve(agent))
    assert OUTSIDE == ["refunded"]
    assert task.run(resolve(agent)) == "done"
    assert OUTSIDE == ["refunded"]
    assert ASKED == [1, 3]


class Session(FunctionToolset):
    """Be tools that need something open, as those of an MCP server do."""

    async def __aexit__(self, *error: Any) -> bool | None:
        OUTSIDE.append("closed")
        return await super().__aexit__(*error)


@pytest.mark.parametrize("prefixed", [False, True])
def test_a_tools_time_limit_of_pydantic_ai_leaves_no_refund_to_itself(prefixed: bool) -> None:
    @effect(key="slow/{order_id}")
    def slow_refund(order_id: int) -> str:
        """Refund an order."""
        threading.Event().wait(0.3)  # longer than the limit
        OUTSIDE.append(("refund", order_id))
        return "refunded"

    tools: Any = FunctionToolset([slow_refund], timeout=0.01)
    name = "p_slow_refund" if prefixed else "slow_refund"
    told: list[Any] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([call(name, order_id=1)])
        told.extend(getattr(part, "content", None) for part in messages[-1].parts)
        return ModelResponse([TextPart("done")])

    agent = Agent(FunctionModel(ask), toolsets=[tools.prefixed("p") if prefixed else tools])
    assert DurableTask().run(resolve(agent)) == "done"
    assert (told, OUTSIDE) == (["refunded"], [("refund", 1)])


def test_what_tools_work_with_stays_open_until_the_last_of_them_has_ended() -> None:
    at_work, raised = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        at_work.set()
        await raised.wait()
        await asyncio.sleep(0.05)
        OUTSIDE.append("ended")
        return "fine"

    async def sibling() -> str:
        await at_work.wait()
        raised.set()
        raise Later

    agent = Agent(scripted([call("slow"), call("sibling")], "done"), toolsets=[Session([slow, sibling])])
    with pytest.raises(Later):
        DurableTask().run(resolve(agent))
    assert OUTSIDE == ["ended", "closed"]


@pytest.mark.parametrize("then", [ValueError, None])
def test_a_tool_that_swallows_the_question_does_not_end_the_task_otherwise(then: type[Exception] | None) -> None:
    def swallows() -> str:
        try:
            return refund_approved(4711, 100)
        except BaseException:
            if then is not None:
                raise then from None
            return "never mind"

    agent = Agent(scripted([call("swallows")], "done"), tools=[swallows])
    task = DurableTask()
    with pytest.raises(AttemptAsks):
        task.run(resolve(agent))
    task.answer("Approve")
    assert task.run(resolve(agent)) == "done"
    assert OUTSIDE == [("refund", 4711, 100)]


# --- results of tools -------------------------------------------------------------------------------------------------


class Order(BaseModel):
    number: int
    due: datetime


@dataclass
class Named:
    name: str


def test_results_come_back_as_the_model_saw_them() -> None:
    seen: list[Any] = []
    given: dict[str, Any] = {
        "model": Order(number=1, due=datetime(2026, 1, 2, tzinfo=UTC)),
        "plain": {"a": [1, 2.5, None, True], "kind": "binary"},
        "image": BinaryContent(b"\x89PNG", media_type="image/png"),
        "list": ["look", BinaryContent(b"\x89PNG", media_type="image/png")],
        "return": ToolReturn(
            "short", content=["more", BinaryContent(b"x", media_type="image/png")], metadata=Named("m")
        ),
        "nothing": None,
        "numbers": {"a": [{"score": np.float64(0.5), "row": np.arange(3)}], "d": Decimal("1.50"), "b": b"\xff"},
    }

    def give(what: str) -> Any:
        OUTSIDE.append(what)
        return given[what]

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([call("give", what=what) for what in given])
        seen.append([(type(part).__name__, getattr(part, "content", None)) for part in messages[-1].parts])
        return ModelResponse([TextPart("done")])

    agent = Agent(FunctionModel(ask), tools=[give])
    task = DurableTask()

    def changed(flow: Flow) -> Any:
        # Another temperature: the last request is made again, with what was recorded.
        return flow.agent("resolve", agent, "Ticket 1")

    retried(task, changed, Later)
    assert len(OUTSIDE) == len(given)
    assert seen[0][0] == ("ToolReturnPart", {"number": 1, "due": "2026-01-02T00:00:00Z"})
    assert seen[0][1] == ("ToolReturnPart", given["plain"])
    numbers = {"a": [{"score": 0.5, "row": [0, 1, 2]}], "d": "1.50", "b": "_w=="}
    assert ("ToolReturnPart", numbers) in seen[0]
    images = [each for each in seen[0] if "Binary" in repr(each)]
    assert len(images) >= 3


def test_a_result_without_a_json_form_is_refused_by_name() -> None:
    agent = Agent(scripted([call("odd")], "done"))

    @agent.tool_plain
    def odd() -> object:
        return {"a": [1, {"score": object()}]}

    with pytest.raises(PayloadEncodeError, match=r"a\[1\]\.score: a tool's result must have a JSON form"):
        DurableTask().run(resolve(agent))


def test_settings_that_can_not_be_compared_are_refused_and_never_taken_for_equal() -> None:
    for _ in range(2):
        agent = Agent(scripted("done"), model_settings={"extra_body": {"hook": lambda: None}})
        with pytest.raises(StepInputError, match="can't be compared"):
            DurableTask().run(resolve(agent))
    assert ASKED == []


def test_large_and_binary_results_are_carried_on() -> None:
    sizes: list[int] = []
    given = {"png": b"\x89PNG" + bytes(1_300_000), "file": BinaryContent(bytes(3_000_000), media_type="image/png")}

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(len(messages))
        if len(messages) == 1:
            return ModelResponse([call("give", what=what) for what in given])
        sizes.append(sum(len(repr(part)) for part in messages[-1].parts))
        return ModelResponse([TextPart("done")])

    def give(what: str) -> Any:
        OUTSIDE.append(what)
        return given[what]

    assert retried(DurableTask(), resolve(Agent(FunctionModel(ask), tools=[give])), Later) == "done"
    assert sorted(OUTSIDE) == ["file", "png"]
    assert ASKED == [1, 3]
    assert sizes[0] > 4_000_000


@pytest.mark.parametrize("error", [ModelRetry("once more"), ToolFailed("no such order")])
def test_what_a_tool_has_the_model_told_is_recorded(error: Exception) -> None:
    def tells(order_id: int) -> str:
        OUTSIDE.append(order_id)
        raise error

    agent = Agent(scripted([call("tells", order_id=1)], "done"), tools=[tells])
    retried(DurableTask(), resolve(agent), Later)
    assert OUTSIDE == [1]
    assert ASKED == [1, 3]


def test_a_secret_in_a_tools_result_reaches_neither_the_model_nor_the_ledger() -> None:
    seen: list[Any] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([call("reveal")])
        seen.append(messages[-1].parts[0].content)  # type: ignore[union-attr]
        return ModelResponse([TextPart("done")])

    agent = Agent(FunctionModel(ask))

    @agent.tool_plain
    def reveal() -> str:
        OUTSIDE.append("revealed")
        return "the password is hunter2!"

    retried(DurableTask(secrets=("hunter2!",)), resolve(agent), Later)
    assert seen == ["the password is ***"]
    assert OUTSIDE == ["revealed"]


# --- reuse across runs ------------------------------------------------------------------------------------------------


def test_an_agents_requests_are_taken_from_another_run_and_its_tools_are_called() -> None:
    stock = ["5"]

    def look(order_id: int) -> str:
        OUTSIDE.append(("look", order_id))
        return stock[0]

    clock = ManualClock()
    ledger, store = MemoryLedger(clock), MemoryArtifactStore()

    def night(number: int, reuse: Any = timedelta(days=30)) -> tuple[list[int], list[Any]]:
        ASKED.clear()
        OUTSIDE.clear()
        agent = Agent(scripted([call("look", order_id=7)], REFUND, "done"), tools=[look, refund_order])
        task = DurableTask(ledger=ledger, store=store, clock=clock, run_id=f"night {number}")
        assert task.run(lambda flow: flow.agent("resolve", agent, "Ticket 1", reuse=reuse)) == "done"
        return [*ASKED], [*OUTSIDE]

    assert night(1) == ([1, 3, 5], [("look", 7), ("refund", 4711, 100)])
    assert night(2) == ([], [("look", 7)]), "a tool is called anew; an effect was done before"
    assert night(3, None) == ([1, 3, 5], [("look", 7)])
    stock[0] = "0"
    assert night(4) == ([3, 5], [("look", 7)]), "what follows another result is another request"


# --- output, limits, budgets ------------------------------------------------------------------------------------------


def test_an_answer_that_does_not_fit_is_asked_for_again_by_the_next_try() -> None:
    fits: list[bool] = []

    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(len(messages))
        fits.append(len(ASKED) > 3)
        [output] = info.output_tools
        number: Any = 7 if fits[-1] else "seven"
        if len(messages) == 1:
            return ModelResponse([call("lookup_order", order_id=1)])
        return ModelResponse([ToolCallPart(output.name, {"number": number, "due": "2026-01-02T00:00:00Z"})])

    agent = Agent(FunctionModel(ask), output_type=Order, retries=1, tools=[lookup_order])
    task = DurableTask()
    with pytest.raises(UnexpectedModelBehavior):
        task.run(resolve(agent))
    assert ASKED == [1, 3, 5]
    assert task.run(resolve(agent)).number == 7
    assert ASKED == [1, 3, 5, 3], "the answers of no use are asked for again, and nothing before them"
    assert task.run(resolve(agent)).number == 7
    assert len(ASKED) == 4
    assert OUTSIDE == [("look", 1)]


def test_a_vote_of_no_use_leaves_the_other_votes_as_they_are() -> None:
    """Three runs of one name and prompt: of the second, the answer and the one after it do not fit."""
    votes = iter([1, "two", "zwei", 2, 3])

    def vote(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(len(messages))
        return ModelResponse([call("final_result", response=next(votes))])

    agent = Agent(FunctionModel(vote), output_type=int, retries=1)

    def body(flow: Flow) -> list[int]:
        return [flow.agent("vote", agent, "How many?") for _ in range(3)]

    task = DurableTask()
    with pytest.raises(UnexpectedModelBehavior):
        task.run(body)
    assert ASKED == [1, 1, 3], "a vote, another one, and that one once more"
    for _ in range(2):
        assert task.run(body) == [1, 2, 3]
        assert ASKED == [1, 1, 3, 1, 1], "the second anew and the third; the first is paid once"


def test_an_agent_in_a_tool_that_gives_up_leaves_the_outer_answers_as_they_are() -> None:
    answers = iter(["none", "none either", 7])

    def number(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([call("final_result", response=next(answers))])

    inner = Agent(FunctionModel(number, model_name="inner"), output_type=int)

    async def research(question: str) -> int:
        flow: Any = current_flow()
        return int(await flow.agent("research", inner, question))

    outer = Agent(scripted([call("research", question="?")], "done"), tools=[research])
    task = DurableTask()
    with pytest.raises(UnexpectedModelBehavior):
        task.run(resolve(outer))
    assert task.run(resolve(outer)) == "done"
    assert ASKED == [1, 3], "the answer that called the tool is paid once"


def test_an_output_is_validated_from_the_record_too() -> None:
    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ASKED.append(len(messages))
        [output] = info.output_tools
        return ModelResponse([ToolCallPart(output.name, {"number": 7, "due": "2026-01-02T00:00:00Z"})])

    agent = Agent(FunctionModel(ask), output_type=Order)
    assert retried(DurableTask(), resolve(agent), Later) == Order(number=7, due=datetime(2026, 1, 2, tzinfo=UTC))
    assert ASKED == [1]


def test_usage_limits_count_the_whole_run_replays_included() -> None:
    agent = Agent(scripted([call("lookup_order", order_id=1)], [call("lookup_order", order_id=2)], "done"))
    agent.tool_plain(lookup_order)
    task = DurableTask()

    def body(flow: Flow) -> Any:
        return flow.agent("resolve", agent, "Ticket 1", usage_limits=UsageLimits(request_limit=2))

    for _ in range(2):
        with pytest.raises(UsageLimitExceeded):
            task.run(body)
    assert ASKED == [1, 3]


def test_a_budget_holds_over_the_requests_of_an_agent_and_stops_before_the_one_that_exceeds_it() -> None:
    agent = Agent(scripted([call("lookup_order", order_id=1)], "done"), tools=[lookup_order])
    agent.model_settings = {"max_tokens": 100}
    task = DurableTask(budget="250 tokens")
    with pytest.raises(BudgetExceededError):
        task.run(resolve(agent, "word " * 250))
    assert ASKED == []
    task.budget = "5000 tokens"
    assert task.run(resolve(agent, "word " * 250)) == "done"
    assert ASKED == [1, 3]


def test_each_request_of_an_agent_waits_for_its_limit() -> None:
    from airflow_aiflow.durable.limit import Limit
    from airflow_aiflow.storage.memory import MemoryLedger
    from airflow_aiflow.testing import ManualClock

    clock = ManualClock()
    ledger = MemoryLedger(clock)
    ledger.limits.set_limit(Limit("openai", rpm=2))
    agent = Agent(scripted(*([[call("lookup_order", order_id=n)] for n in range(5)]), "done"), tools=[lookup_order])
    task = DurableTask(ledger=ledger, clock=clock)
    began = clock.monotonic()
    assert task.run(lambda flow: flow.agent("resolve", agent, "Ticket 1", rate_limit="openai")) == "done"
    assert len(ASKED) == 6
    assert clock.monotonic() - began >= 120, "two requests a minute"
    with pytest.raises(AiflowConfigError, match="unset"):
        DurableTask().run(lambda flow: flow.agent("resolve", agent, "Ticket 1", rate_limit="unset"))
    assert len(ASKED) == 6


def test_what_is_spent_is_known_and_replays_cost_nothing() -> None:
    agent = Agent(scripted([call("lookup_order", order_id=1)], "done"), tools=[lookup_order])
    spent: list[Any] = []

    def body(flow: Flow) -> Any:
        output = flow.agent("resolve", agent, "Ticket 1")
        spent.append(flow.spent)
        return output

    retried(DurableTask(), body, Later)
    assert spent[0].calls == spent[1].calls == 2
    assert spent[0].tokens_in == spent[1].tokens_in > 0


# --- forms of tasks ---------------------------------------------------------------------------------------------------


def test_an_async_task_awaits_its_agent() -> None:
    agent = Agent(
        scripted([call("lookup_order", order_id=1), call("refund_async", order_id=1, cents=2)], "done"),
        tools=[lookup_order, refund_async, refund_order],
    )
    task = DurableTask()

    async def body(flow: AsyncFlow) -> str:
        return await flow.agent("resolve", agent, "Ticket 1")

    async def failing(flow: AsyncFlow) -> str:
        await body(flow)
        raise Later

    with pytest.raises(Later):
        task.run_async(failing)
    assert task.run_async(body) == "done"
    assert sorted(OUTSIDE) == [("look", 1), ("refund", 1, 2)]
    assert ASKED == [1, 3]


def test_an_async_task_asks_a_person_too() -> None:
    agent = Agent(scripted([call("refund_approved", order_id=1, cents=2)], "done"), tools=[refund_approved])
    task = DurableTask()

    async def body(flow: AsyncFlow) -> str:
        return await flow.agent("resolve", agent, "Ticket 1")

    with pytest.raises(AttemptAsks):
        task.run_async(body)
    task.answer("Approve")
    assert task.run_async(body) == "done"
    assert OUTSIDE == [("refund", 1, 2)]
    assert ASKED == [1, 3]


def test_told_to_end_an_agent_starts_nothing_more_and_goes_on_later() -> None:
    def shut(order_id: int) -> str:
        flow: Any = current_flow()
        flow._session.gate.shut(30, "the process is told to end")
        return lookup_order(order_id)

    agent = Agent(scripted([call("shut", order_id=1)], "done"), tools=[shut])
    task = DurableTask()
    with pytest.raises(AttemptParked):
        task.run(resolve(agent))
    assert OUTSIDE == [("look", 1)]
    task.same_again()
    assert task.run(resolve(agent)) == "done"
    assert OUTSIDE == [("look", 1)], "what was in hand is recorded"
    assert ASKED == [1, 3]


def test_a_signal_ends_an_agent_whose_tool_does_not_return() -> None:
    """As Airflow's ``execution_timeout`` does, by a handler that raises in the main thread."""
    never = threading.Event()

    def late(number: int, frame: object) -> None:
        raise TimeoutError("the task's time is over")

    def hangs() -> str:
        OUTSIDE.append("began")
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        never.wait(60)
        return "late"

    agent = Agent(scripted([call("hangs")], "done"), tools=[hangs])
    before = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(TimeoutError, match="time is over"):
            DurableTask().run(resolve(agent))
    finally:
        signal.signal(signal.SIGALRM, before)
        never.set()
    assert OUTSIDE == ["began"]
    assert ASKED == [1]


def test_agents_run_side_by_side() -> None:
    agent = Agent(scripted(REFUND, "done"), tools=[refund_order])

    async def several(flow: AsyncFlow) -> list[str]:
        return list(await asyncio.gather(*(flow.agent("resolve", agent, f"Ticket {n}") for n in range(4))))

    task = DurableTask()
    assert task.run_async(several) == ["done"] * 4
    assert OUTSIDE == [("refund", 4711, 100)]
    assert len(ASKED) == 8

    mapped = DurableTask()

    def tickets(flow: Flow) -> list[str]:
        return flow.map("tickets", ask_anew, range(4), max_workers=4)

    assert retried(mapped, tickets, Later) == ["done"] * 4
    assert len(ASKED) == 16


def ask_anew(number: int) -> str:
    flow: Any = current_flow()
    return str(flow.agent("resolve", Agent(scripted(REFUND, "done"), tools=[refund_order]), f"Ticket {number}"))


def test_a_streamed_answer_replays_and_its_handler_sees_it() -> None:
    events: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        ASKED.append(len(messages))
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="lookup_order", json_args='{"order_id": 1}', tool_call_id="c1")}
        else:
            for piece in ("do", "ne"):
                yield piece

    async def listen(ctx: Any, told: Any) -> None:
        async for event in told:
            events.append(type(event).__name__)

    from pydantic_ai.capabilities import ProcessEventStream

    agent = Agent(
        FunctionModel(stream_function=stream), tools=[lookup_order], capabilities=[ProcessEventStream(listen)]
    )
    assert retried(DurableTask(), resolve(agent), Later) == "done"
    assert ASKED == [1, 3]
    assert OUTSIDE == [("look", 1)]
    assert events.count("FunctionToolCallEvent") == 2
    assert events.count("FinalResultEvent") == 2


def test_tools_and_instructions_get_the_deps() -> None:
    agent = Agent(scripted([call("who")], "done"), deps_type=str)

    @agent.tool
    def who(ctx: RunContext[str]) -> str:
        OUTSIDE.append(ctx.deps)
        return ctx.deps

    task = DurableTask()
    assert task.run(lambda flow: flow.agent("resolve", agent, "Ticket 1", deps="ann")) == "done"
    assert OUTSIDE == ["ann"]


def test_two_runs_of_one_name_and_prompt_are_two() -> None:
    agent = Agent(scripted("done"))

    def body(flow: Flow) -> list[str]:
        return [flow.agent("resolve", agent, "Ticket 1") for _ in range(2)]

    retried(DurableTask(), body, Later)
    assert ASKED == [1, 1]


def test_what_is_no_agent_and_what_has_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match="takes an agent of pydantic-ai"):
        DurableTask().run(lambda flow: flow.agent("resolve", "agent", "Ticket 1"))  # type: ignore[arg-type]
    with pytest.raises(AiflowConfigError, match="pydanticai_default"):
        DurableTask().run(lambda flow: flow.agent("resolve", Agent(), "Ticket 1"))


def test_a_running_loop_is_told_to_await() -> None:
    agent = Agent(scripted("done"))

    def body(flow: Flow) -> str:
        async def inside() -> str:
            return flow.agent("resolve", agent, "Ticket 1")

        return asyncio.run(inside())

    with pytest.raises(TypeError, match=r"await flow\.agent"):
        DurableTask().run(body)
    assert ASKED == []


# --- what an effect has the model told -------------------------------------------------------------------------------


CAUSES: list[BaseException | None] = []


def picky(cause: BaseException | None, **options: Any) -> Any:
    """Make an effect that refuses a large amount by having the model asked again."""
    CAUSES[:] = [cause]

    @effect(key="refund/{order_id}", on_in_doubt="hold", **options)
    def refund(order_id: int, cents: int) -> str:
        OUTSIDE.append(cents)
        if cents <= 100:
            return f"refunded {cents}"
        raise ModelRetry("at most 100") from CAUSES[0]

    return refund


TWICE: list[Answer] = [[call("refund", order_id=1, cents=900)], [call("refund", order_id=1, cents=100)], "done"]


def test_an_effect_may_have_the_model_asked_again() -> None:
    """It is the author's word that nothing was done: not in doubt, and not called again with the same arguments."""
    task = DurableTask()
    body = resolve(Agent(scripted(*TWICE), tools=[picky(EffectNotAppliedError())]))
    assert retried(task, body, Later) == "done"
    # On the replay the first call is not made: it would find the effect done with another amount.
    assert OUTSIDE == [900, 100]
    assert ASKED == [1, 3, 5]


@pytest.mark.parametrize("cause", [None, ConnectionResetError()])
def test_a_model_that_is_asked_again_settles_no_doubt(cause: BaseException | None) -> None:
    """What was sent before nobody knows."""
    with pytest.raises(EffectInDoubtError):
        DurableTask().run(resolve(Agent(scripted(*TWICE), tools=[picky(cause)])))
    assert OUTSIDE == [900]


def test_an_author_may_say_by_classify_that_nothing_was_done() -> None:
    fails = picky(None, classify=lambda error: "not_applied" if isinstance(error, ModelRetry) else None)
    assert DurableTask().run(resolve(Agent(scripted(*TWICE), tools=[fails]))) == "done"
    assert OUTSIDE == [900, 100]


def test_a_tool_that_failed_and_says_that_nothing_was_done_is_told_once() -> None:
    @effect(key="refund/{order_id}", on_in_doubt="hold")
    def refund(order_id: int, cents: int) -> str:
        OUTSIDE.append(cents)
        raise ToolFailed("no such order") from EffectNotAppliedError()

    body = resolve(Agent(scripted([call("refund", order_id=1, cents=9)], "done"), tools=[refund]))
    assert retried(DurableTask(), body, Later) == "done"
    assert OUTSIDE == [9]
