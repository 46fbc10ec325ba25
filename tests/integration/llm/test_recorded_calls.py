"""Model calls through a flow: paid once, whatever happens to the attempts; counted at the server."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from airflow_aiflow.exceptions import ModelIncompleteError, ModelTimeoutError
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.testing import DurableTask, ManualClock
from tests.integration.llm.conftest import Connect
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, text_reply

PROMPT = "The tenant pays ninety euros on the first day of each month. The landlord keeps the roof in good repair."


class Assessment(BaseModel):
    risk: int
    reasons: list[str] = []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def task(caller: PydanticAICaller, connect: Connect, stand_in: ModelService, clock: ManualClock) -> DurableTask:
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    return DurableTask(models=caller, clock=clock)


@pytest.fixture
def scripted_task(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel, wire: str) -> DurableTask:
    connect("pydanticai_default", scripted.base_url, f"{wire}:gpt-5-mini")
    return DurableTask(models=caller, clock=ManualClock())


def test_an_answer_with_nul_is_stored_and_replayed_exactly(scripted_task: DurableTask, scripted: ScriptedModel) -> None:
    scripted.answer = lambda asked: text_reply(asked, "ok\u0000tail")
    assert scripted_task.run(lambda flow: flow.llm("ask", PROMPT)) == "ok\u0000tail"
    assert scripted_task.run(lambda flow: flow.llm("ask", PROMPT)) == "ok\u0000tail"
    assert len(scripted.asked) == 1


def test_what_was_spent_is_the_sum_over_all_attempts(scripted_task: DurableTask, scripted: ScriptedModel) -> None:
    def three(flow: Any, fail_after: int) -> Any:
        for number in range(3):
            if number == fail_after:
                raise RuntimeError("the worker is gone")
            flow.llm("ask", f"{PROMPT} Question {number}?")
        return flow.spent

    with pytest.raises(RuntimeError):
        scripted_task.run(lambda flow: three(flow, 2))
    spent = scripted_task.run(lambda flow: three(flow, 9))
    assert len(scripted.asked) == 3
    assert (spent.calls, spent.tokens_in, spent.tokens_out) == (3, 3000, 300)
    assert spent.cost == 3 * Decimal("0.00045")


def test_a_map_asks_once_for_each_prompt(task: DurableTask, stand_in: ModelService) -> None:
    prompts = [f"{PROMPT} Page {number}." for number in range(20)]
    before = len(stand_in.requests())
    first = task.run(lambda flow: flow.llm_map("page", prompts, max_workers=8))
    assert len(stand_in.requests()) - before == 20
    again = task.run(lambda flow: flow.llm_map("page", prompts[::-1], max_workers=8))
    assert again == first[::-1]
    assert len(stand_in.requests()) - before == 20


def test_a_type_is_rebuilt_from_the_record(scripted_task: DurableTask, scripted: ScriptedModel) -> None:
    def answer(asked: Asked) -> Reply:
        return text_reply(asked, '{"risk": 3, "reasons": ["late"]}')

    scripted.answer = answer
    for _ in range(2):
        value = scripted_task.run(lambda flow: flow.llm("assess", PROMPT, output_type=Assessment))
        assert value == Assessment(risk=3, reasons=["late"])
        assert type(value) is Assessment
    assert len(scripted.asked) == 1


@pytest.mark.parametrize("asked", ["7", "0", None])
def test_a_rate_limit_is_waited_for_inside_the_attempt(
    task: DurableTask, clock: ManualClock, stand_in: ModelService, asked: str | None
) -> None:
    stand_in.set_faults(Fault("status", first=1, status=429, retry_after=asked))
    before, began = len(stand_in.requests()), clock.monotonic()
    assert "tenant" in task.run(lambda flow: flow.llm("ask", PROMPT))
    assert len(stand_in.requests()) - before == 2
    assert clock.monotonic() - began >= float(asked or 0)


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault("silent"), ModelTimeoutError), (Fault("cut"), ModelIncompleteError)],
    ids=["silent", "cut"],
)
def test_an_unknown_outcome_is_one_request_and_the_next_attempt_asks_again(
    task: DurableTask, stand_in: ModelService, fault: Fault, error: type[Exception]
) -> None:
    stand_in.set_faults(fault)
    before = len(stand_in.requests())
    with pytest.raises(error):
        task.run(lambda flow: flow.llm("ask", PROMPT, timeout=2))
    assert len(stand_in.requests()) - before == 1
    stand_in.set_faults()
    assert "tenant" in task.run(lambda flow: flow.llm("ask", PROMPT, timeout=30))
    assert len(stand_in.requests()) - before == 2


def test_adding_a_fallback_after_an_outage_keeps_what_was_paid(
    task: DurableTask, stand_in: ModelService, connect: Connect
) -> None:
    connect("backup", stand_in.base_url, "openai:stand-in", password=stand_in.api_key)
    before = len(stand_in.requests())
    first = task.run(lambda flow: flow.llm("ask", PROMPT))
    again = task.run(lambda flow: flow.llm("ask", PROMPT, fallback_conn_ids=["backup"], timeout=300, output_retries=2))
    assert again == first
    assert len(stand_in.requests()) - before == 1
