"""Agents against the stand-in model with its faults: each request is one on the network, and paid once."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.usage import UsageLimits

from airflow_aiflow import effect
from airflow_aiflow.exceptions import (
    BudgetExceededError,
    ModelError,
    ModelIncompleteError,
    ModelRequestError,
    ModelTimeoutError,
)
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask
from tests.integration.llm.conftest import Connect

TICKET = "The lamp of order 4711 broke. I want my money back."

CALLED: list[str] = []


def lookup_order(order_id: int) -> str:
    """Look up an order."""
    CALLED.append("look")
    return "a lamp"


@effect(key="refund/{order_id}")
def refund_order(order_id: int, cents: int) -> str:
    """Refund an order."""
    CALLED.append("refund")
    return "refunded"


class Verdict(BaseModel):
    refunded: bool
    why: str


async def listen(context: Any, events: Any) -> None:
    async for _ in events:
        pass


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    CALLED.clear()


@pytest.fixture(params=["whole", "streamed"])
def agent(request: pytest.FixtureRequest, connect: Connect, stand_in: ModelService, wire: str) -> Agent[None, str]:
    """Give an agent without a model: it gets that of the default connection."""
    connect("pydanticai_default", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    streams = [ProcessEventStream(listen)] if request.param == "streamed" else []
    return Agent(instructions="Resolve the ticket.", tools=[lookup_order, refund_order], capabilities=streams)


def resolve(agent: Agent[None, Any], **options: Any) -> Any:
    return lambda flow: flow.agent("resolve", agent, TICKET, **options)


def answered(stand_in: ModelService, before: int) -> list[bool]:
    return [request.answered for request in stand_in.requests()[before:]]


def test_a_retry_sends_nothing_and_knows_what_was_spent(agent: Agent[None, str], stand_in: ModelService) -> None:
    before = len(stand_in.requests())
    spent: list[Any] = []

    def body(flow: Flow) -> str:
        output = flow.agent("resolve", agent, TICKET)
        spent.append(flow.spent)
        return output

    task = DurableTask()
    first = task.run(body)
    assert "lamp" in first
    assert task.run(body) == first
    assert answered(stand_in, before) == [True] * 3
    assert CALLED == ["look", "refund"]
    assert (spent[0].calls, spent[0].tokens_in > 0, spent[0].unpriced) == (3, True, 3)
    assert spent[1] == spent[0]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("cut", first=1), ModelIncompleteError),
        (Fault("truncate", first=1), ModelIncompleteError),
        (Fault("status", status=400, first=1), ModelRequestError),
    ],
    ids=lambda one: getattr(one, "kind", ""),
)
def test_a_request_that_fails_is_one_request_and_none_is_recorded_half(
    agent: Agent[None, str], stand_in: ModelService, fault: Fault, error: type[ModelError]
) -> None:
    task, before = DurableTask(), len(stand_in.requests())
    stand_in.set_faults(fault)
    with pytest.raises(error):
        task.run(resolve(agent))
    assert len(stand_in.requests()) == before + 1
    assert "lamp" in task.run(resolve(agent))
    assert len(stand_in.requests()) == before + 4
    assert CALLED == ["look", "refund"]


def test_a_stream_without_its_end_is_no_answer(agent: Agent[None, str], stand_in: ModelService) -> None:
    task, before = DurableTask(), len(stand_in.requests())
    stand_in.set_faults(Fault("no_end", first=1))
    with pytest.raises(ModelIncompleteError):
        task.run(resolve(agent))
    assert CALLED == []
    assert "lamp" in task.run(resolve(agent))
    assert len(stand_in.requests()) == before + 4


def test_a_busy_server_is_asked_again(agent: Agent[None, str], stand_in: ModelService) -> None:
    before = len(stand_in.requests())
    stand_in.set_faults(Fault("status", status=429, retry_after="1", first=1))
    assert "lamp" in DurableTask().run(resolve(agent))
    assert len(stand_in.requests()) == before + 4


def test_a_silent_server_is_left_at_the_deadline(agent: Agent[None, str], stand_in: ModelService) -> None:
    agent.model_settings = {"timeout": 1.0}
    before = len(stand_in.requests())
    stand_in.set_faults(Fault("silent", first=1))
    task = DurableTask()
    with pytest.raises(ModelTimeoutError, match="within 1 s"):
        task.run(resolve(agent))
    assert len(stand_in.requests()) == before + 1


def test_limits_of_the_run_and_budgets_of_the_task_hold(agent: Agent[None, str], stand_in: ModelService) -> None:
    before = len(stand_in.requests())
    with pytest.raises(UsageLimitExceeded):
        DurableTask().run(resolve(agent, usage_limits=UsageLimits(request_limit=2)))
    assert len(stand_in.requests()) == before + 2
    with pytest.raises(BudgetExceededError):
        DurableTask(budget="1000 tokens", run_id="2").run(resolve(agent))
    assert len(stand_in.requests()) == before + 2


def test_an_output_type_comes_back_as_its_class(agent: Agent[None, str], stand_in: ModelService) -> None:
    typed: Agent[None, Verdict] = Agent(instructions="Resolve.", tools=[refund_order], output_type=Verdict)
    task, before = DurableTask(), len(stand_in.requests())
    first = task.run(resolve(typed))
    assert isinstance(first, Verdict)
    assert task.run(resolve(typed)) == first
    assert len(stand_in.requests()) == before + 2


def test_the_next_connection_of_a_chain_is_asked_where_nothing_was_served(
    connect: Connect, stand_in: ModelService, nobody: str, wire: str
) -> None:
    connect("spare", stand_in.base_url, f"{wire}:stand-in", password=stand_in.api_key)
    connect("pydanticai_default", nobody, f"{wire}:stand-in", fallback_conn_ids=["spare"])
    before = len(stand_in.requests())
    assert "lamp" in DurableTask().run(resolve(Agent(instructions="Resolve.", tools=[lookup_order])))
    assert len(stand_in.requests()) == before + 2
