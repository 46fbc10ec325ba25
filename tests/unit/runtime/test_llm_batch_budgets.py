"""Budgets of ``flow.llm_batch`` in memory, its provider played: what is set aside when, and what takes its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_aiflow.durable.budget import NOTHING, Account, Budget, Held, Hold, Spending
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    AttemptParked,
    BudgetExceededError,
    EffectNotAppliedError,
    ItemsFailedError,
    JobFailedError,
)
from airflow_aiflow.llm.provider_batch import BatchRow, ProviderBatch
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask, ScriptedModels

ACCOUNT = Account("dag", "run", "task")

#: Of a prompt "aaa": 1 token and 16 around it, and an answer of at most 100.
MOST = 117

#: What a token costs here.
PRICE = Decimal("0.001")

DAY = 86_400.0


class Refused(EffectNotAppliedError):
    """The provider takes no batch now, and says so."""


class Provider:
    """Be the provider: take batches, say how they stand, and give answers of one token in and one out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.submitted: list[str] = []
        self.states: dict[str, Any] = {}
        self.refuses = False
        self.cuts = 0
        self.loses = 0
        self.prices = True
        self.rows = [BatchRow(number, "yes", None, 1, 1, 2 * PRICE) for number in range(2)]
        provider = self

        def submit(self: ProviderBatch, prompts: Any, key: str, fingerprint: str) -> str:
            if provider.refuses:
                raise Refused("not now")
            if provider.cuts:
                provider.cuts -= 1
                raise ConnectionError("cut on the way there")
            provider.submitted.append(key)
            batch_id = f"batch-{len(provider.submitted)}"
            provider.states[batch_id] = SimpleNamespace(status="in_progress", counts=None, error_message=None)
            if provider.loses:
                provider.loses -= 1
                raise ConnectionError("the answer is lost")
            return batch_id

        def find(self: ProviderBatch, key: str) -> str | None:
            return f"batch-{provider.submitted.index(key) + 1}" if key in provider.submitted else None

        def quote(self: ProviderBatch, calls: Mapping[tuple[int, int], int]) -> Decimal | None:
            return sum(sum(size) * number for size, number in calls.items()) * PRICE if provider.prices else None

        @contextmanager
        def opened(self: ProviderBatch) -> Iterator[Any]:
            yield SimpleNamespace(get_batch=lambda batch_id: provider.states[batch_id], name="openai"), "gpt"

        monkeypatch.setattr(ProviderBatch, "provider", lambda *_args: "openai")
        monkeypatch.setattr(ProviderBatch, "submit", submit)
        monkeypatch.setattr(ProviderBatch, "find", find)
        monkeypatch.setattr(ProviderBatch, "quote", quote)
        monkeypatch.setattr(ProviderBatch, "cancel", lambda *_args: None)
        monkeypatch.setattr(ProviderBatch, "rows", lambda *_args: iter(provider.rows))
        monkeypatch.setattr(ProviderBatch, "_open", opened)

    def ends(self, status: str = "completed", counts: Any = None, error: str | None = None) -> None:
        """Have all batches end."""
        for batch_id in self.states:
            self.states[batch_id] = SimpleNamespace(status=status, counts=counts, error_message=error)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    return Provider(monkeypatch)


def batch(prompts: tuple[str, ...] = ("aaa", "bbb"), **options: Any) -> Callable[[Flow], Any]:
    given = {"model_settings": {"max_tokens": 100}, **options}
    return lambda flow: flow.llm_batch("story", list(prompts), **given)


def parks(task: DurableTask, body: Callable[[Flow], Any]) -> None:
    with pytest.raises(AttemptParked):
        task.run(body)
    task.same_again()


def look(task: DurableTask, name: str = "") -> Held:
    """Tell how a budget stands: by a hold that no budget takes."""
    account = Account(ACCOUNT.dag_id, ACCOUNT.run_id, ACCOUNT.task_id, name)
    wanted = Hold(Spending(Decimal(10**9), 10**9), None, 1, b"k" * 32, 1.0)
    return task.ledger.spending.hold(account, Budget(Decimal(1), 1), wanted)


def stands(task: DurableTask, name: str = "") -> tuple[int, int, int]:
    """Give the tokens that are spent, those of unknown outcome among them, and those held."""
    held = look(task, name)
    return held.spent.tokens, held.unknown.tokens, held.open.tokens


def test_the_most_it_may_cost_is_held_until_its_answers_are_taken(provider: Provider) -> None:
    task = DurableTask(budget=f"{2 * MOST} tokens")
    for _ in range(3):
        parks(task, batch())
        assert stands(task) == (0, 0, 2 * MOST)
    provider.ends()
    task.run(batch())
    assert stands(task) == (4, 0, 0)
    task.run(batch())
    assert stands(task) == (4, 0, 0), "a replay pays nothing"
    assert len(provider.submitted) == 1


def test_a_retry_and_a_clear_hold_nothing_more(provider: Provider) -> None:
    task = DurableTask(budget="$1")
    for again in (task.retried, task.cleared):
        parks(task, batch())
        again()
        task.clock.advance(task.settings.lease.ttl + 1)  # type: ignore[attr-defined]
    parks(task, batch())
    held = look(task)
    assert (held.spent, held.open) == (NOTHING, Spending(2 * MOST * PRICE, 2 * MOST))
    provider.ends()
    task.run(batch())
    assert look(task).spent == Spending(4 * PRICE, 4)


def test_the_calls_of_a_later_attempt_do_not_take_its_hold_for_lost(provider: Provider) -> None:
    task = DurableTask(budget="1000 tokens")
    parks(task, batch())
    task.retried()

    def asks_first(flow: Flow) -> None:
        flow.llm("ask", "aaa", model_settings={"max_tokens": 100})
        batch()(flow)

    parks(task, asks_first)
    assert stands(task) == (2, 0, 2 * MOST)
    provider.ends()
    task.run(asks_first)
    assert stands(task) == (2 + 4, 0, 0)


@pytest.mark.parametrize("of", ["task", "batch"])
def test_a_budget_that_is_too_small_stops_before_the_submission_and_a_raised_one_goes_on(
    provider: Provider, of: str
) -> None:
    def budget(task: DurableTask, tokens: int) -> Callable[[Flow], Any]:
        task.budget = f"{tokens} tokens" if of == "task" else None
        return batch() if of == "task" else batch(budget=f"{tokens} tokens")

    task = DurableTask()
    for _ in range(2):
        with pytest.raises(BudgetExceededError, match=r"the batch 'story' may take 234 tokens\. Nothing was sent"):
            task.run(budget(task, 2 * MOST - 1))
    assert provider.submitted == []
    name = "" if of == "task" else "story"
    assert stands(task, name) == (0, 0, 0)
    task.cleared()
    parks(task, budget(task, 2 * MOST))
    assert len(provider.submitted) == 1
    assert stands(task, name) == (0, 0, 2 * MOST)


def test_where_one_of_two_budgets_is_too_small_the_other_keeps_nothing(provider: Provider) -> None:
    task = DurableTask(budget="10000 tokens")
    with pytest.raises(BudgetExceededError, match="the budget of 'story' in task task"):
        task.run(batch(budget="100 tokens"))
    assert (stands(task), stands(task, "story")) == ((0, 0, 0), (0, 0, 0))
    parks(task, batch(budget="300 tokens"))
    assert (stands(task), stands(task, "story")) == ((0, 0, 2 * MOST), (0, 0, 2 * MOST))
    provider.ends()
    task.run(batch(budget="300 tokens"))
    assert (stands(task), stands(task, "story")) == ((4, 0, 0), (4, 0, 0))


def test_the_schema_of_its_answers_counts_for_each_prompt(provider: Provider) -> None:
    task = DurableTask(budget="10000 tokens")
    parks(task, batch(output_type=list[int]))
    assert stands(task)[2] > 2 * MOST


def test_a_budget_in_money_needs_a_price(provider: Provider) -> None:
    provider.prices = False
    task = DurableTask(budget="$5")
    with pytest.raises(AiflowConfigError, match=r"no price is known.*budget='200000 tokens'"):
        task.run(batch())
    assert provider.submitted == []


def test_a_submission_that_was_surely_refused_costs_nothing_and_the_next_one_is_held(provider: Provider) -> None:
    provider.refuses = True
    task = DurableTask(budget="10000 tokens")
    with pytest.raises(Refused):
        task.run(batch())
    assert stands(task) == (0, 0, 0)
    provider.refuses = False
    parks(task, batch())
    assert stands(task) == (0, 0, 2 * MOST)


def test_one_whose_answer_was_lost_is_held_once_and_found(provider: Provider) -> None:
    provider.loses = 1
    task = DurableTask(budget=f"{2 * MOST} tokens")
    parks(task, batch())
    parks(task, batch())
    assert stands(task) == (0, 0, 2 * MOST)
    provider.ends()
    task.run(batch())
    assert (stands(task), len(provider.submitted)) == ((4, 0, 0), 1)


def test_one_that_never_arrived_is_submitted_again_under_the_same_hold(provider: Provider) -> None:
    provider.cuts = 2
    task = DurableTask(budget=f"{2 * MOST} tokens")
    for _ in range(4):
        with contextlib.suppress(AttemptParked, ConnectionError):
            task.run(batch())
        assert stands(task) == (0, 0, 2 * MOST)
    assert len(provider.submitted) == 1


def test_one_that_is_sent_again_in_doubt_keeps_its_one_hold(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.loses = 1
    task = DurableTask(budget=f"{2 * MOST} tokens", settings=FlowSettings(on_in_doubt="retry"))
    monkeypatch.setattr(ProviderBatch, "find", _cant_tell)
    parks(task, batch())
    assert (len(provider.submitted), len(set(provider.submitted))) == (2, 1), "sent again with one key"
    assert stands(task) == (0, 0, 2 * MOST)


def _cant_tell(self: ProviderBatch, key: str) -> str | None:
    raise LookupError("too many batches")


@pytest.mark.parametrize(
    ("status", "counts", "error", "spent"),
    [
        ("failed", None, "the file is wrong", (0, 0)),
        ("cancelled", {"succeeded": 0, "cancelled": 2}, None, (0, 0)),
        ("cancelled", {"succeeded": 1, "cancelled": 1}, None, (2 * MOST, 2 * MOST)),
        ("cancelled", None, None, (2 * MOST, 2 * MOST)),
    ],
)
def test_what_a_batch_without_answers_counts(
    provider: Provider, status: str, counts: Any, error: str | None, spent: tuple[int, int]
) -> None:
    task = DurableTask(budget="10000 tokens")
    parks(task, batch())
    provider.ends(status, counts, error)
    for _ in range(2):
        with pytest.raises(JobFailedError):
            task.run(batch())
        assert stands(task) == (*spent, 0)


def test_answers_that_fail_the_task_count_once(provider: Provider) -> None:
    provider.rows[1] = BatchRow(1, None, "errored", 0, 0, Decimal(0))
    task = DurableTask(budget="10000 tokens")
    parks(task, batch())
    provider.ends()
    for _ in range(2):
        with pytest.raises(ItemsFailedError):
            task.run(batch())
        assert stands(task) == (2, 0, 0)
    task.run(batch(on_item_error="skip"))
    assert stands(task) == (2, 0, 0)


@pytest.mark.parametrize(("tokens", "spent"), [(1, (2, 0)), (0, (2 * MOST, 2 * MOST))])
def test_answers_of_which_the_price_or_all_is_unknown(provider: Provider, tokens: int, spent: tuple[int, int]) -> None:
    provider.rows = [BatchRow(0, "yes", None, tokens, 0, None), BatchRow(1, "yes", None, 1, 0, None)]
    task = DurableTask(budget="$1")
    parks(task, batch())
    provider.ends()
    task.run(batch())
    held = look(task)
    assert (held.spent.tokens, held.unknown.tokens, held.open.tokens) == (*spent, 0)
    assert held.spent.cost == 2 * MOST * PRICE, "what nobody tells counts as it was guessed"


def test_one_that_nobody_comes_back_for_counts_as_its_estimate_after_its_time(provider: Provider) -> None:
    task = DurableTask(budget="10000 tokens")
    parks(task, batch())
    task.clock.advance(DAY)  # type: ignore[attr-defined]
    assert stands(task) == (0, 0, 2 * MOST)
    task.clock.advance(2 * 3600)  # type: ignore[attr-defined]
    assert stands(task) == (2 * MOST, 2 * MOST, 0)


def test_calls_beside_a_batch_see_its_hold(provider: Provider) -> None:
    models = ScriptedModels()
    task = DurableTask(budget="300 tokens", map_index=0, models=models)
    beside = DurableTask(
        budget="300 tokens", map_index=1, models=models, ledger=task.ledger, clock=task.clock, store=task.store
    )

    def ask(flow: Flow) -> Any:
        return flow.llm("ask", "aaa", model_settings={"max_tokens": 100})

    parks(task, batch())
    parks(beside, ask)  # 234 are held and 117 wanted; the batch may end with less
    assert models.requests == []
    assert any("the call 'ask' waits for other calls to end" in line for line in beside.host.lines)
    beside.budget = "100 tokens"
    with pytest.raises(BudgetExceededError):
        beside.run(ask)
    beside.budget = "300 tokens"
    provider.ends()
    task.run(batch())
    beside.run(ask)
    assert len(models.requests) == 1
    assert stands(task)[::2] == (4 + 2, 0)


def test_map_indexes_that_share_a_batch_hold_it_once(provider: Provider) -> None:
    first = DurableTask(budget="10000 tokens", map_index=0)
    second = DurableTask(budget="10000 tokens", map_index=1, ledger=first.ledger, clock=first.clock, store=first.store)
    parks(first, batch())
    parks(second, batch())
    assert (stands(first), len(provider.submitted)) == ((0, 0, 2 * MOST), 1)
    provider.ends()
    second.run(batch())
    first.run(batch())
    assert stands(first) == (4, 0, 0)


def test_a_budget_given_after_the_answers_counts_them_once(provider: Provider) -> None:
    task = DurableTask()
    parks(task, batch())
    provider.ends()

    def both(flow: Flow) -> None:
        batch()(flow)
        flow.llm("ask", "aaa", model_settings={"max_tokens": 100})

    task.run(batch())
    task.budget = "1000 tokens"
    task.run(both)
    assert stands(task)[0] == 4 + 2


def test_a_budget_whose_batch_is_recorded_is_not_looked_at_twice(provider: Provider) -> None:
    """The account is made at the hold: what the answers' step records is in it by the settlement alone."""
    task = DurableTask(budget="1000 tokens")

    def both(flow: Flow) -> None:
        batch()(flow)
        flow.llm("ask", "aaa", model_settings={"max_tokens": 100})

    parks(task, both)
    provider.ends()
    task.run(both)
    assert stands(task) == (4 + 2, 0, 0)
