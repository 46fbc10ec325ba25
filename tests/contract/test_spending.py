"""What every keeper of budgets must hold: what is spent and held never exceeds the budget, whoever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from uuid import uuid4

import pytest

from airflow_aiflow.durable.budget import NOTHING, Account, Budget, Hold, Spending
from airflow_aiflow.durable.execution import Lease, Taken
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import Batch, Usage
from airflow_aiflow.durable.spending import SpendingLedger, Wasted
from tests.contract.ledger_world import World, a_step, an_attempt, an_execution, take

BUDGET = Budget(cost=Decimal("1.00"))


@pytest.fixture
def spending(world: World) -> SpendingLedger:
    return world.ledger.spending


@pytest.fixture
def execution() -> ExecutionId:
    return an_execution()


@pytest.fixture
def account(execution: ExecutionId) -> Account:
    return Account(execution.dag_id, execution.run_id, execution.task_id)


@pytest.fixture
def mine(ledger: Ledger, execution: ExecutionId) -> Taken:
    return take(ledger, an_attempt(execution))


def usd(amount: str, tokens: int = 0) -> Spending:
    return Spending(Decimal(amount), tokens)


def a_hold(mine: Taken, amount: Spending, *, key: bytes = b"k" * 32, seconds: float = 180.0) -> Hold:
    return Hold(amount, mine.lease, mine.generation, key, seconds)


def test_a_hold_is_granted_where_all_fits(spending: SpendingLedger, account: Account, mine: Taken) -> None:
    first = a_hold(mine, usd("0.60"))
    assert spending.hold(account, BUDGET, first).granted
    refused = spending.hold(account, BUDGET, a_hold(mine, usd("0.41")))
    assert (refused.granted, refused.spent, refused.open) == (False, NOTHING, usd("0.60"))
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.40"))).granted
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.01"))).granted is False


def test_what_it_cost_replaces_what_was_held(spending: SpendingLedger, account: Account, mine: Taken) -> None:
    first = a_hold(mine, usd("0.90", 900))
    spending.hold(account, BUDGET, first)
    spending.settle(account, first, usd("0.25", 250))
    spending.settle(account, first, usd("0.25", 250))  # repeated after a lost answer
    held = spending.hold(account, BUDGET, a_hold(mine, usd("0.75", 1)))
    assert (held.granted, held.spent, held.unknown) == (True, usd("0.25", 250), NOTHING)


def test_a_repeated_hold_is_one_hold(spending: SpendingLedger, account: Account, mine: Taken) -> None:
    first = a_hold(mine, usd("0.60"))
    assert spending.hold(account, BUDGET, first).granted
    assert spending.hold(account, BUDGET, first).granted
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.40"))).granted


def test_tokens_are_a_budget_too(spending: SpendingLedger, account: Account, mine: Taken) -> None:
    budget = Budget(tokens=1000)
    assert spending.hold(account, budget, a_hold(mine, usd("9", 600))).granted
    assert spending.hold(account, budget, a_hold(mine, usd("0", 401))).granted is False
    assert spending.hold(account, Budget(tokens=1001), a_hold(mine, usd("0", 401))).granted


def test_a_call_of_unknown_outcome_counts_and_is_told_apart(
    spending: SpendingLedger, account: Account, mine: Taken
) -> None:
    first = a_hold(mine, usd("0.30", 30))
    spending.hold(account, BUDGET, first)
    spending.settle(account, first, first.amount, unknown=True)
    held = spending.hold(account, BUDGET, a_hold(mine, usd("0.71")))
    assert (held.granted, held.spent, held.unknown) == (False, usd("0.30", 30), usd("0.30", 30))


def test_a_raised_budget_goes_on(spending: SpendingLedger, account: Account, mine: Taken) -> None:
    first = a_hold(mine, usd("0.90"))
    spending.hold(account, BUDGET, first)
    spending.settle(account, first, usd("0.95"))
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.10"))).granted is False
    assert spending.hold(account, Budget(cost=Decimal(2)), a_hold(mine, usd("0.10"))).granted


def test_a_dead_workers_hold_counts_once_its_call_is_surely_over(
    world: World, spending: SpendingLedger, account: Account, mine: Taken
) -> None:
    spending.hold(account, BUDGET, a_hold(mine, usd("0.60", 60), seconds=100))
    world.pass_time(99)
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.50"))).open == usd("0.60", 60)
    world.pass_time(2)
    held = spending.hold(account, BUDGET, a_hold(mine, usd("0.50")))
    assert (held.granted, held.spent, held.unknown, held.open) == (False, usd("0.60", 60), usd("0.60", 60), NOTHING)


def test_the_next_attempt_settles_what_the_one_before_left(
    ledger: Ledger, spending: SpendingLedger, account: Account, mine: Taken
) -> None:
    """One call's result was recorded just before the kill, the other one's was not."""
    key = b"r" * 32
    spending.hold(account, BUDGET, a_hold(mine, usd("0.30", 300), key=key))
    spending.hold(account, BUDGET, a_hold(mine, usd("0.30", 300), key=b"l" * 32))
    usage = Usage(model="m", tokens_in=70, tokens_out=5, cost=Decimal("0.07"))
    step = replace(a_step(), step_key=key, fence=mine.lease.fence, usage=usage)
    ledger.record(mine.lease, mine.generation, Batch((step,)))
    later = replace(mine, lease=Lease(mine.lease.execution_pk, mine.lease.fence + 1))
    held = spending.hold(account, BUDGET, a_hold(later, usd("0.70")))
    assert (held.granted, held.spent, held.unknown) == (False, usd("0.37", 375), usd("0.30", 300))
    assert spending.hold(account, BUDGET, a_hold(later, usd("0.63"))).granted


def test_a_hold_of_no_attempt_is_one_for_all_attempts_until_its_time_is_over(
    world: World, spending: SpendingLedger, account: Account, mine: Taken
) -> None:
    """A provider's batch outlives the attempt that submitted it; whoever comes later makes the same hold."""
    batch = replace(a_hold(mine, usd("0.60", 60), seconds=100), lease=None)
    assert spending.hold(account, BUDGET, batch).granted
    later = replace(mine, lease=Lease(mine.lease.execution_pk, mine.lease.fence + 1))
    beside = a_hold(later, usd("0.10", 10))
    assert spending.hold(account, BUDGET, beside).open == usd("0.60", 60), "no later attempt takes it for lost"
    again = spending.hold(account, BUDGET, batch)
    assert (again.granted, again.spent, again.open) == (True, NOTHING, usd("0.10", 10)), "nor does it take others"
    spending.settle(account, beside, NOTHING)
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.50"))).granted is False
    world.pass_time(101)
    held = spending.hold(account, BUDGET, a_hold(later, usd("0.50")))
    assert (held.spent, held.unknown, held.open) == (usd("0.60", 60), usd("0.60", 60), NOTHING)
    spending.settle(account, batch, usd("0.01", 1))
    assert spending.hold(account, BUDGET, a_hold(later, usd("0.50"))).spent == usd("0.60", 60), "it counted already"


def test_the_first_hold_counts_what_was_recorded_before(
    ledger: Ledger, spending: SpendingLedger, account: Account, mine: Taken
) -> None:
    usage = Usage(model="m", tokens_in=70, tokens_out=5, cost=Decimal("0.07"))
    for number in range(3):
        key = bytes([number]) * 32
        step = replace(a_step(), step_key=key, name="page" if number else "other", usage=usage)
        ledger.record(mine.lease, mine.generation, Batch((step,)))
    assert spending.hold(account, BUDGET, a_hold(mine, usd("0.1"))).spent == usd("0.21", 225)
    assert spending.hold(replace(account, name="page"), BUDGET, a_hold(mine, usd("0.1"))).spent == usd("0.14", 150)
    elsewhere = replace(account, run_id=f"other {uuid4()}")
    assert spending.hold(elsewhere, BUDGET, a_hold(mine, usd("0.1"))).spent == NOTHING


def test_holds_at_the_same_time_never_exceed_together(spending: SpendingLedger, account: Account, mine: Taken) -> None:
    def call(number: int) -> bool:
        one = a_hold(mine, usd("0.10"))
        granted = spending.hold(account, BUDGET, one).granted
        if granted and number % 2:
            spending.settle(account, one, usd("0.10"))
        return granted

    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(call, range(40)))
    assert sum(granted) == 10


def test_wasted_calls_are_summed_up_for_later_attempts(spending: SpendingLedger, mine: Taken) -> None:
    usage, call_id = Usage(model="m\x00", tokens_in=7, tokens_out=3, cost=Decimal("0.5")), uuid4()
    for _ in range(2):
        spending.waste(mine.lease, mine.generation, call_id, "assess", usage)
    spending.waste(mine.lease, mine.generation, uuid4(), "assess", replace(usage, cost=None))
    assert spending.wasted(mine.lease, mine.generation) == Wasted()
    later = Lease(mine.lease.execution_pk, mine.lease.fence + 1)
    assert spending.wasted(later, mine.generation) == Wasted(2, 14, 6, Decimal("0.5"), unpriced=1)
    assert spending.wasted(later, mine.generation + 1) == Wasted()


def test_a_wait_runs_on_until_the_model_answers(world: World, spending: SpendingLedger, mine: Taken) -> None:
    assert spending.waits(mine.lease, 1, served=False) < 5
    world.pass_time(100)
    assert 100 <= spending.waits(mine.lease, 1, served=False) < 110
    assert spending.waits(mine.lease, 1, served=True) < 5
    world.pass_time(100)
    assert spending.waits(mine.lease, 2, served=False) < 5, "another attempt waits anew"
