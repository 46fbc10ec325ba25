"""
Budgets: how much the model calls of a task, or of a map of prompts, may cost, over all attempts and workers.

A call's estimate is held before the call and replaced by what it cost after it, so calls at work at the same time can't
together exceed what none of them exceeds. A hold whose worker is gone counts as spent: the provider may have billed it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Protocol
from uuid import UUID, uuid4

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import digest
from airflow_aiflow.exceptions import FlowOptionError

#: What ``budget=`` may look like, for messages.
EXAMPLES = "5 or '$5' (US dollars), '200000 tokens', or both: '$5, 200000 tokens'"

_MONEY = re.compile(r"(?:\$\s*(?P<a>[\d_.]+)|(?P<b>[\d_.]+)\s*(?:usd|dollars?))", re.IGNORECASE)
_TOKENS = re.compile(r"(?P<n>[\d_.]+)\s*(?P<unit>k|m)?\s*tokens?", re.IGNORECASE)
_UNITS = {None: 1, "k": 1_000, "m": 1_000_000}


@dataclass(frozen=True, slots=True)
class Spending:
    """
    Hold an amount: US dollars and tokens.

    :param cost: US dollars.
    :param tokens: of prompts and answers.
    """

    cost: Decimal = Decimal(0)
    tokens: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.cost + other.cost, self.tokens + other.tokens)

    def __sub__(self, other: Spending) -> Spending:
        return Spending(self.cost - other.cost, self.tokens - other.tokens)


NOTHING = Spending()


@dataclass(frozen=True, slots=True)
class Budget:
    """
    Hold the limit of a budget.

    :param cost: US dollars; ``None``: any amount.
    :param tokens: of prompts and answers; ``None``: any number.
    """

    cost: Decimal | None = None
    tokens: int | None = None

    def fits(self, amount: Spending) -> bool:
        """
        Say whether an amount is within the budget.

        :param amount: all that is spent, held and wanted.
        """
        return (self.cost is None or amount.cost <= self.cost) and (self.tokens is None or amount.tokens <= self.tokens)

    def shown(self, amount: Spending) -> str:
        """
        Write an amount in the units in which the budget is given.

        :param amount: to show.
        """
        parts = []
        if self.cost is not None:
            parts.append(f"${amount.cost:.4f}")
        if self.tokens is not None:
            parts.append(f"{amount.tokens:,} tokens")
        return " and ".join(parts)

    def __str__(self) -> str:
        return self.shown(Spending(self.cost or Decimal(0), self.tokens or 0))


def read_budget(value: object) -> Budget | None:
    """
    Read ``budget=``.

    :param value: US dollars as a number, or a text with dollars, tokens or both; ``None``: no budget.
    :raises FlowOptionError: if it is neither.
    """
    if value is None or isinstance(value, Budget):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Budget(cost=_positive(str(value), value))
    if not isinstance(value, str) or not value.strip():
        raise _wrong(value)
    cost: Decimal | None = None
    tokens: int | None = None
    for part in value.split(","):
        money, count = _MONEY.fullmatch(part.strip()), _TOKENS.fullmatch(part.strip())
        if money is not None and cost is None:
            cost = _positive(money["a"] or money["b"], value)
        elif count is not None and tokens is None:
            unit = count["unit"]
            tokens = int(_positive(count["n"], value) * _UNITS[unit.lower() if unit else None])
        else:
            raise _wrong(value)
    return Budget(cost, tokens)


def _positive(text: str, value: object) -> Decimal:
    try:
        number = Decimal(text.replace("_", ""))
    except InvalidOperation:
        raise _wrong(value) from None
    if not number.is_finite() or number <= 0:
        raise _wrong(value)
    return number


def _wrong(value: object) -> FlowOptionError:
    return FlowOptionError(f"budget must be {EXAMPLES}; got {value!r}")


@dataclass(frozen=True, slots=True)
class Account:
    """
    Name what a budget is over: a task of a run, with all its map indexes, attempts and generations.

    :param name: of the map of prompts that has a budget of its own; empty: the whole task's.
    """

    dag_id: str
    run_id: str
    task_id: str
    name: str = ""

    @property
    def identity(self) -> bytes:
        """32 bytes over the four."""
        return digest("budget", self.dag_id, self.run_id, self.task_id, self.name)

    def __str__(self) -> str:
        what = f"'{self.name}' in task" if self.name else "task"
        return f"{what} {self.task_id} of {self.dag_id}, run {self.run_id}"


@dataclass(frozen=True, slots=True)
class Hold:
    """
    Set an estimate aside for one call.

    :param amount: the estimate.
    :param lease: of the attempt that makes the call; ``None``: what is paid for outlives attempts, as a provider's
        batch does, and no later attempt takes it for lost before its time.
    :param generation: of that attempt.
    :param step_key: of the call's step: tells later whether its result was recorded.
    :param seconds: within which the call surely ends.
    :param hold_id: one hold for each; who repeats it after a lost answer, or for another attempt, holds nothing more.
    """

    amount: Spending
    lease: Lease | None
    generation: int
    step_key: bytes
    seconds: float
    hold_id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True)
class Held:
    """
    Answer a hold.

    :param granted: whether the call may be made.
    :param spent: so far, calls of unknown outcome included.
    :param unknown: of it, what was held for calls whose outcome nobody knows.
    :param open: held for calls at work.
    """

    granted: bool
    spent: Spending
    unknown: Spending = NOTHING
    open: Spending = NOTHING


class BudgetLedger(Protocol):
    """
    Keep what is spent and held. Safe for use from several threads; both methods may be repeated after a lost answer.

    Any method raises ``LedgerUnavailableError`` where it can't be asked: then no call is made.
    """

    def hold(self, account: Account, budget: Budget, hold: Hold) -> Held:
        """
        Set an estimate aside where it fits. One that is set aside already stays as it is.

        The first hold of an account counts what the task has recorded before.
        """

    def settle(self, account: Account, hold: Hold, spent: Spending, *, unknown: bool = False) -> None:
        """
        Replace an estimate by what the call cost.

        :param spent: nothing, where the call was surely not served.
        :param unknown: whether nobody knows what it cost, so that ``spent`` is the estimate.
        """
