"""What model calls cost, in memory, for tests and for authors' unit tests: answers as the PostgreSQL one does."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_aiflow.durable.budget import NOTHING, Account, Budget, Held, Hold, Spending
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.durable.record import StepRecord, Usage
from airflow_aiflow.durable.spending import Wasted
from airflow_aiflow.storage.rows import step_record

if TYPE_CHECKING:
    from airflow_aiflow.storage.memory import MemoryLedger
    from airflow_aiflow.storage.memory_tables import Tables


@dataclass(slots=True)
class _Row:
    spent: Spending
    unknown: Spending = NOTHING
    #: With the moments until which they stand.
    holds: dict[UUID, tuple[Hold, float]] = field(default_factory=dict)


def _of(record: StepRecord, estimate: Spending = NOTHING) -> Spending:
    usage = record.usage
    if usage is None:
        return NOTHING
    return Spending(estimate.cost if usage.cost is None else usage.cost, usage.tokens_in + usage.tokens_out)


def _gone(left: Hold, by: Hold) -> bool:
    """Say whether a hold is of an earlier attempt of the execution that asks now."""
    if left.lease is None or by.lease is None:
        return False
    return left.lease.execution_pk == by.lease.execution_pk and left.lease.fence < by.lease.fence


def _recorded(tables: Tables, account: Account) -> Spending:
    """Sum up what was recorded before a budget was first asked."""
    total = NOTHING
    for (pk, _), steps in tables.steps.items():
        of = tables.by_pk[pk].execution
        if (of.dag_id, of.run_id, of.task_id) != (account.dag_id, account.run_id, account.task_id):
            continue
        records = [step_record(row) for row in steps.values()]
        for record in records:
            if account.name in ("", record.name):
                total += _of(record)
    return total


class MemorySpending:
    """
    Implement the port ``SpendingLedger`` without a database.

    :param ledger: whose tables, lock and faults it shares.
    :param clock: stands for the database's clock.
    """

    def __init__(self, ledger: MemoryLedger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._budgets: dict[Account, _Row] = {}
        self._wasted: dict[UUID, tuple[Lease, int, Usage]] = {}
        self._waits: dict[int, tuple[int, float]] = {}

    def hold(self, account: Account, budget: Budget, hold: Hold) -> Held:
        """Set an estimate aside where it fits."""
        with self._ledger.statement() as tables:
            row = self._budgets.get(account)
            if row is None:
                row = self._budgets[account] = _Row(_recorded(tables, account))
            now = self._clock.monotonic()
            for left, until in list(row.holds.values()):
                if _gone(left, hold) or until <= now:
                    self._take_for_spent(tables, row, left)
            others = [one.amount for one, _ in row.holds.values() if one.hold_id != hold.hold_id]
            held = sum(others, NOTHING)
            granted = budget.fits(row.spent + held + hold.amount)
            if granted:
                row.holds.setdefault(hold.hold_id, (hold, now + hold.seconds))
            return Held(granted, row.spent, row.unknown, held)

    def _take_for_spent(self, tables: Tables, row: _Row, left: Hold) -> None:
        del row.holds[left.hold_id]
        found = None
        if left.lease is not None:
            found = tables.steps.get((left.lease.execution_pk, left.generation), {}).get(left.step_key)
        record = None if found is None else step_record(found)
        if record is not None and left.lease is not None and record.fence == left.lease.fence:
            row.spent += _of(record, left.amount)
        else:
            row.spent += left.amount
            row.unknown += left.amount

    def settle(self, account: Account, hold: Hold, spent: Spending, *, unknown: bool = False) -> None:
        """Replace an estimate by what the call cost."""
        with self._ledger.statement():
            row = self._budgets.get(account)
            if row is None or row.holds.pop(hold.hold_id, None) is None:
                return
            row.spent += spent
            if unknown:
                row.unknown += spent

    def waste(self, lease: Lease, generation: int, call_id: UUID, name: str, usage: Usage) -> None:
        """Note a call that was paid and gave nothing to record."""
        with self._ledger.statement():
            self._wasted.setdefault(call_id, (lease, generation, usage))

    def wasted(self, lease: Lease, generation: int) -> Wasted:
        """Sum up what earlier attempts of a generation wasted."""
        with self._ledger.statement():
            found = [
                usage
                for of, when, usage in self._wasted.values()
                if (of.execution_pk, when) == (lease.execution_pk, generation) and of.fence < lease.fence
            ]
        return Wasted(
            len(found),
            sum(usage.tokens_in for usage in found),
            sum(usage.tokens_out for usage in found),
            sum((usage.cost or Decimal(0) for usage in found), Decimal(0)),
            sum(usage.cost is None for usage in found),
        )

    def waits(self, lease: Lease, number: int, *, served: bool) -> float:
        """Tell for how long an attempt has waited for a model."""
        with self._ledger.statement():
            before, since = self._waits.get(lease.execution_pk, (number, self._clock.monotonic()))
            if before != number or served:
                since = self._clock.monotonic()
            self._waits[lease.execution_pk] = (number, since)
            return self._clock.monotonic() - since
