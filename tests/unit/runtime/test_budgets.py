"""Budgets of model calls: what stops before which call, and how it goes on."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest

from airflow_aiflow.durable.budget import Budget, Spending, read_budget
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    BudgetExceededError,
    FlowOptionError,
    ModelError,
    ModelIncompleteError,
    ModelOutputError,
    ModelUnavailableError,
)
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.testing import DurableTask, ScriptedModels

MOST = {"max_tokens": 10}


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        (5, Budget(cost=Decimal(5))),
        (0.5, Budget(cost=Decimal("0.5"))),
        (Decimal("1.25"), Budget(cost=Decimal("1.25"))),
        ("$5", Budget(cost=Decimal(5))),
        ("2.50 USD", Budget(cost=Decimal("2.50"))),
        ("200000 tokens", Budget(tokens=200_000)),
        ("200_000 tokens", Budget(tokens=200_000)),
        ("200k tokens", Budget(tokens=200_000)),
        ("1.5M tokens", Budget(tokens=1_500_000)),
        ("$5, 200k tokens", Budget(cost=Decimal(5), tokens=200_000)),
        (None, None),
    ],
)
def test_how_a_budget_is_written(given: Any, budget: Budget | None) -> None:
    assert read_budget(given) == budget


@pytest.mark.parametrize(
    "given",
    [0, -1, True, "", "5", "five dollars", "$5, $6", "$", "0 tokens", float("nan"), float("inf"), [5], "$1.2.3"],
)
def test_what_is_no_budget(given: Any) -> None:
    with pytest.raises(FlowOptionError, match="budget must be 5 or"):
        read_budget(given)


def asked(flow: Any, count: int, **options: Any) -> list[str]:
    return [flow.llm("ask", f"question {number}", model_settings=MOST, **options) for number in range(count)]


def priced(price: str = "0.10") -> ScriptedModels:
    return ScriptedModels(price=Decimal(price))


def test_it_stops_before_the_call_that_would_exceed_it_and_goes_on_when_raised() -> None:
    models = priced()
    task = DurableTask(models=models, budget="$0.35")
    with pytest.raises(BudgetExceededError) as caught:
        task.run(lambda flow: asked(flow, 6))
    assert len(models.requests) == 3
    said = str(caught.value)
    assert "the budget of task task of dag, run run is $0.3500: $0.3000 is spent" in said
    assert "the call 'ask' may take $0.1000. Nothing was sent" in said
    with pytest.raises(BudgetExceededError):
        task.run(lambda flow: asked(flow, 6))
    assert len(models.requests) == 3, "it holds across attempts"
    task.budget = "$1"
    task.cleared()
    task.run(lambda flow: asked(flow, 6))
    assert len(models.requests) == 6


def test_tokens_are_counted_with_what_the_model_reported() -> None:
    models = ScriptedModels()
    task = DurableTask(models=models, budget="100 tokens")
    with pytest.raises(BudgetExceededError, match="tokens is spent"):
        task.run(lambda flow: asked(flow, 99))
    # A call takes 2 + 1 tokens, its estimate 20 + 10 at first, then 20 + 1.
    assert len(models.requests) == 27
    assert 27 * 3 + 21 > 100


def test_mapped_tasks_share_one_budget() -> None:
    models = priced()
    first = DurableTask(models=models, map_index=0, budget="$0.35")
    second = DurableTask(models=models, map_index=1, budget="$0.35", ledger=first.ledger, clock=first.clock)
    first.run(lambda flow: asked(flow, 2))
    with pytest.raises(BudgetExceededError):
        second.run(lambda flow: [flow.llm("ask", f"other {n}", model_settings=MOST) for n in range(2)])
    assert len(models.requests) == 3


def test_another_run_has_a_budget_of_its_own() -> None:
    models = priced()
    first = DurableTask(models=models, budget="$0.25")
    first.run(lambda flow: asked(flow, 2))
    other = DurableTask(models=models, budget="$0.25", run_id="other", ledger=first.ledger, clock=first.clock)
    other.run(lambda flow: asked(flow, 2))
    assert len(models.requests) == 4


def test_what_was_recorded_before_there_was_a_budget_counts() -> None:
    models = priced()
    task = DurableTask(models=models)
    with pytest.raises(ZeroDivisionError):
        task.run(lambda flow: (asked(flow, 3), 1 / 0))
    task.budget = 0.35
    with pytest.raises(BudgetExceededError, match=r"\$0.3000 is spent"):
        task.run(lambda flow: asked(flow, 4))
    assert len(models.requests) == 3


def test_a_fresh_start_does_not_refill_it() -> None:
    models = priced()
    task = DurableTask(models=models, budget="$0.35", on_clear="fresh")
    task.run(lambda flow: asked(flow, 2))
    task.cleared()
    with pytest.raises(BudgetExceededError, match=r"\$0.3000 is spent"):
        task.run(lambda flow: asked(flow, 2))


def test_calls_at_the_same_time_do_not_exceed_it_together() -> None:
    most = threading.Semaphore(8)
    most_at_once: list[int] = []
    at_work: set[str] = set()
    lock = threading.Lock()

    def answer(request: LlmRequest) -> str:
        with most:
            with lock:
                at_work.add(request.prompt)
                most_at_once.append(len(at_work))
            with lock:
                at_work.discard(request.prompt)
            return "yes"

    models = ScriptedModels(answer, price=Decimal("0.10"))
    task = DurableTask(models=models, budget="$1.00")
    prompts = [f"p{number}" for number in range(40)]
    with pytest.raises(BudgetExceededError):
        task.run(lambda flow: flow.llm_map("page", prompts, max_workers=8, model_settings=MOST))
    assert len(models.requests) == 10


def test_a_map_may_have_a_budget_of_its_own() -> None:
    models = priced()
    task = DurableTask(models=models)

    def body(flow: Any) -> None:
        asked(flow, 5)
        flow.llm_map("page", [f"p{number}" for number in range(9)], budget="$0.25", model_settings=MOST)

    with pytest.raises(BudgetExceededError, match="the budget of 'page' in task task"):
        task.run(body)
    assert len(models.requests) == 5 + 2


@pytest.mark.parametrize("on_item_error", ["skip", 0.9])
def test_a_map_that_skips_failed_items_stops_at_its_budget_all_the_same(on_item_error: Any) -> None:
    models = priced()
    task = DurableTask(models=models)
    with pytest.raises(BudgetExceededError):
        task.run(
            lambda flow: flow.llm_map(
                "page", [f"p{n}" for n in range(9)], budget=0.25, model_settings=MOST, on_item_error=on_item_error
            )
        )
    assert len(models.requests) == 2


def failing(error: ModelError, price: str = "0.10") -> ScriptedModels:
    def answer(_request: LlmRequest) -> str:
        raise error

    return ScriptedModels(answer, price=Decimal(price))


@pytest.mark.parametrize(
    ("error", "spent"),
    [
        (ModelUnavailableError("busy", status_code=503), "0"),
        (ModelIncompleteError("cut"), "0.10"),
        (ModelOutputError("misfit", usage=Usage(tokens_in=5, tokens_out=5, cost=Decimal("0.04"))), "0.04"),
        (ModelOutputError("misfit"), "0.10"),
    ],
    ids=["not served", "broken off", "paid", "paid, nobody knows what"],
)
def test_what_a_failed_call_counts(error: ModelError, spent: str) -> None:
    task = DurableTask(models=failing(error), budget="$9")
    with pytest.raises(type(error)):
        task.run(lambda flow: flow.llm("ask", "p", model_settings=MOST))
    task.budget = "$0.000001"
    with pytest.raises(BudgetExceededError) as caught:
        task.run(lambda flow: flow.llm("ask", "p", model_settings=MOST))
    assert f"${Decimal(spent):.4f} is spent" in str(caught.value)
    assert ("nobody knows" in str(caught.value)) == (spent == "0.10")


def test_a_budget_in_money_needs_a_price() -> None:
    models = ScriptedModels()
    task = DurableTask(models=models, budget="$5")
    with pytest.raises(AiflowConfigError, match=r"no price is known.*budget='200000 tokens'"):
        task.run(lambda flow: asked(flow, 1))
    assert models.requests == []


def test_an_estimate_learns_from_the_steps_past_calls() -> None:
    class Counted(ScriptedModels):
        def call(self, request: LlmRequest) -> LlmAnswer:
            return LlmAnswer("yes", Usage(model="m", tokens_in=10, tokens_out=5))

    # The first estimate takes max_tokens, 1000; once a call has shown 5, more calls fit.
    task = DurableTask(models=Counted(), budget="1200 tokens")
    task.run(lambda flow: [flow.llm("ask", f"q{n}", model_settings={"max_tokens": 1000}) for n in range(60)])
    assert task.run(lambda flow: flow.spent.tokens_in) == 600


def test_spending_adds_up() -> None:
    assert Spending(Decimal(1), 2) + Spending(Decimal(3), 4) - Spending(Decimal(1), 1) == Spending(Decimal(3), 5)


def test_paid_answers_that_fit_nothing_are_in_the_sum_of_later_attempts() -> None:
    usage = Usage(tokens_in=5, tokens_out=5, cost=Decimal("0.04"))
    models = ScriptedModels(
        lambda request: (
            (_ for _ in ()).throw(ModelOutputError("misfit", usage=usage)) if len(models.requests) == 1 else "yes"
        ),
        price=Decimal("0.10"),
    )
    task = DurableTask(models=models)
    with pytest.raises(ModelOutputError):
        task.run(lambda flow: flow.llm("ask", "p"))
    spent = task.run(lambda flow: (flow.llm("ask", "p"), flow.spent)[1])
    assert (spent.calls, spent.cost) == (2, Decimal("0.14"))


def test_an_unknown_price_is_said_and_never_zero() -> None:
    task = DurableTask(models=ScriptedModels())
    spent = task.run(lambda flow: (asked(flow, 2), flow.spent)[1])
    assert (spent.calls, spent.cost, spent.unpriced) == (2, Decimal(0), 2)
    assert "paid an unknown price of 2 calls for 2 model calls" in task.host.lines[-1]
    task.run(lambda flow: asked(flow, 2))
    assert "saved so far 2 model calls, an unknown price of 2 calls" in "".join(task.host.lines)
    assert "saved an unknown price of 2 calls of 2 model calls" in task.host.lines[-1]
