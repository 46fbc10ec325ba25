"""
Agents that are killed: at each failpoint of a request, a tool and a refund that a person approves.

What the outside saw is the measure: nothing that was recorded is asked or called again, the person is asked to approve
once, and whenever the process dies, the refund is made once.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from airflow_aiflow import effect
from airflow_aiflow.durable.inbox import give_word
from airflow_aiflow.runtime.flow import Flow
from tests.crash import child
from tests.crash.launcher import Attempts
from tests.crash.life import ASKS, DONE, KILLED, Life

#: What the model wants, by the number of messages so far.
CALLS: dict[int, list[tuple[str, dict[str, Any]]]] = {
    1: [("lookup_order", {"order_id": 4711})],
    3: [("refund_order", {"order_id": 4711, "cents": 100}), ("lookup_order", {"order_id": 4712})],
}

#: Failpoint of a request -> how many requests are paid in all, of three.
REQUEST = {"after_act": 4, "before_record": 4, "after_record": 3}

#: Failpoint of a tool -> how often the first order is looked up in all.
LOOKUP = {"after_act": 2, "before_record": 2, "after_record": 1}

REFUND = (
    "before_ask",
    "after_ask",
    "before_intent",
    "after_intent",
    "before_act",
    "after_act",
    "before_record",
    "after_record",
)


def lookup_order(order_id: int) -> str:
    """Look up an order."""
    child.seen("looked", str(order_id))
    return f"order {order_id}"


@effect(key="refund/{order_id}", require_approval=True)
def refund_order(order_id: int, cents: int) -> str:
    """Refund an order."""
    child.seen("refunded", f"{order_id} {cents}")
    return "refunded"


def bill(messages: list[ModelMessage]) -> None:
    child.seen("billed", str(len(messages)))
    if len(messages) == 5 and (child.OUTSIDE / "kill the last").exists():
        (child.OUTSIDE / "kill the last").unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    bill(messages)
    calls = CALLS.get(len(messages))
    return ModelResponse([TextPart("done")] if calls is None else [ToolCallPart(*each) for each in calls])


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    bill(messages)
    calls = CALLS.get(len(messages))
    if calls is None:
        yield "do"
        yield "ne"
        return
    for place, (name, arguments) in enumerate(calls):
        yield {place: DeltaToolCall(name, json.dumps(arguments), tool_call_id=f"call_{len(messages)}_{place}")}


async def listen(context: Any, events: Any) -> None:
    async for _ in events:
        pass


def body(flow: Flow) -> str:
    streams = (child.OUTSIDE / "streams").exists()
    agent: Agent[None, str] = Agent(
        FunctionModel(stream_function=stream) if streams else FunctionModel(ask),
        tools=[lookup_order, refund_order],
        capabilities=[ProcessEventStream(listen)] if streams else [],
    )
    return flow.agent("resolve", agent, "The lamp of order 4711 broke.")


class Ticket:
    """Drive one execution; a truthful person approves, and answers doubts by what the outside saw."""

    def __init__(self, attempts: Attempts) -> None:
        self.life = Life(attempts.folder, attempts.dsn, attempts.store, kind="effect", name=attempts.folder.name)
        self.life.body = body
        #: The questions that were asked: number -> how its options begin.
        self.asked: dict[int, str] = {}

    def until_killed(self, armed: str | None) -> None:
        """Run attempts until the armed failpoint kills one."""
        for _ in range(3):
            code = self.life.start(armed).wait()
            if code == KILLED:
                self.life.retried()
                return
            assert code == ASKS, f"ended with {code}: {self.life.outside('log')[-3:]}"
            self.answer()
        raise AssertionError(f"nothing was killed at {armed}")

    def to_its_end(self) -> None:
        """Run attempts until the task is done."""
        code = self.life.start().wait()
        while code == ASKS:
            self.answer()
            code = self.life.start().wait()
        assert code == DONE, f"ended with {code}: {self.life.outside('log')[-5:]}"

    def answer(self) -> None:
        """Answer the last form."""
        options = json.loads(self.life.outside("forms")[-1])
        truth = "It happened" if self.life.outside("refunded") else "It did not happen"
        [words] = [words for text, words in options.items() if text.startswith(("Approve", truth))]
        with self.life.inbox() as inbox:
            for number, word in words:
                self.asked[number] = word
                assert give_word(inbox, number, word, by="ann", note="looked").counts


@pytest.fixture
def ticket(attempts: Attempts) -> Ticket:
    return Ticket(attempts)


@pytest.fixture(params=["whole", "streamed"])
def either(request: pytest.FixtureRequest, ticket: Ticket) -> Ticket:
    """Give a ticket whose model answers whole, and one whose model streams."""
    if request.param == "streamed":
        (ticket.life.folder / "streams").touch()
    return ticket


def assert_refunded_once(ticket: Ticket) -> None:
    life = ticket.life
    assert life.outside("results") == ['"done"']
    assert life.outside("refunded") == ["4711 100"]
    assert list(ticket.asked.values()).count("Approve") == 1


@pytest.mark.parametrize("failpoint", REQUEST)
def test_a_killed_request(either: Ticket, failpoint: str) -> None:
    ticket = either
    ticket.until_killed(f"{failpoint}@resolve")
    ticket.to_its_end()
    assert len(ticket.life.outside("billed")) == REQUEST[failpoint]
    assert sorted(ticket.life.outside("looked")) == ["4711", "4712"]
    assert_refunded_once(ticket)


@pytest.mark.parametrize("failpoint", LOOKUP)
def test_a_killed_tool(ticket: Ticket, failpoint: str) -> None:
    ticket.until_killed(f"{failpoint}@lookup_order")
    ticket.to_its_end()
    assert ticket.life.outside("billed") == ["1", "3", "5"]
    assert ticket.life.outside("looked").count("4711") == LOOKUP[failpoint]
    assert_refunded_once(ticket)


@pytest.mark.parametrize("failpoint", REFUND)
def test_killed_around_the_refund_it_is_made_once_and_nothing_is_paid_again(ticket: Ticket, failpoint: str) -> None:
    ticket.until_killed(f"{failpoint}@refund_order")
    ticket.to_its_end()
    assert ticket.life.outside("billed") == ["1", "3", "5"]
    assert ticket.life.outside("looked").count("4711") == 1
    assert_refunded_once(ticket)


def test_killed_in_the_last_request_only_that_one_is_paid_again(either: Ticket) -> None:
    ticket = either
    (ticket.life.folder / "kill the last").touch()
    ticket.until_killed(None)
    ticket.to_its_end()
    assert ticket.life.outside("billed") == ["1", "3", "5", "5"]
    assert_refunded_once(ticket)
