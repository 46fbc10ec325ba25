"""What the ledger keeps of model calls beside the recorded steps: budgets, calls that gave no result, waits."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol
from uuid import UUID

from airflow_aiflow.durable.budget import BudgetLedger
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Usage


@dataclass(frozen=True, slots=True)
class Wasted:
    """
    Sum up calls that were paid and gave nothing to record.

    :param cost: US dollars, of those whose price is known.
    :param unpriced: those whose price is unknown.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0


class SpendingLedger(BudgetLedger, Protocol):
    """
    Keep what model calls cost. Safe for use from several threads.

    Any method raises ``LedgerUnavailableError`` where it can't be asked, and may be repeated after a lost answer.
    """

    def waste(self, lease: Lease, generation: int, call_id: UUID, name: str, usage: Usage) -> None:
        """
        Note a call that was paid and gave nothing to record, such as an answer that does not fit its type.

        :param call_id: made by the caller, so that a repeat is noted once.
        :param name: of the step.
        """

    def wasted(self, lease: Lease, generation: int) -> Wasted:
        """Sum up what earlier attempts of a generation wasted."""

    def waits(self, lease: Lease, number: int, *, served: bool) -> float:
        """
        Note that an attempt gives its slot back because a model serves nothing now.

        :param number: of the attempt: its reschedules keep it.
        :param served: whether a model answered it meanwhile: the wait is a new one then.
        :return: seconds since the wait began.
        """
