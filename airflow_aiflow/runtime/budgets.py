"""
Hold a call's estimate against its budgets before the call, and settle it after.

Where the budget would hold but for other calls that are at work, their ends are waited for: they mostly take less than
was set aside for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from airflow_aiflow.durable.budget import NOTHING, Account, Budget, Held, Hold, Spending
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import AiflowConfigError, BudgetExceededError, LedgerUnavailableError
from airflow_aiflow.llm.call import KnowsPrices, LlmRequest, ModelCaller
from airflow_aiflow.llm.estimate import Estimate
from airflow_aiflow.runtime.patience import Patience
from airflow_aiflow.runtime.session import Session

#: Seconds beyond a call's own timeout after which it has surely ended, and its hold counts as spent: connecting, an
#: event loop that is busy, and the ledger's own patience with what records the end.
CALL_GRACE = 90.0

#: Seconds that the ends of other calls are waited for in the worker's slot: longer, and the slot goes back. A
#: provider's batch may hold much of a budget for a day.
LONGEST_BUDGET_WAIT = 300.0

#: Seconds between two looks whether other calls have left enough of the budget.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Holding:
    """Be what is set aside for one call, in each of its budgets."""

    holds: tuple[tuple[Account, Hold], ...] = ()


class Budgets:
    """
    Keep the budgets of one attempt.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        services = session.services
        self._ledger = services.ledger.spending
        self._patience = Patience(services.clock, services.settings.ledger_patience, lambda: session.interrupts.held)

    def of(self, name: str, request: LlmRequest) -> tuple[tuple[Account, Budget], ...]:
        """
        Give the budgets that a call counts against.

        :param name: of its step.
        :param request: the call.
        """
        given = zip(self.accounts(name), (self._session.attempt.budget, request.budget), strict=True)
        return tuple((account, budget) for account, budget in given if budget is not None)

    def accounts(self, name: str) -> tuple[Account, Account]:
        """
        Name the task's account and that of one step's calls.

        :param name: of the step.
        """
        execution = self._session.attempt.execution
        task = (execution.dag_id, execution.run_id, execution.task_id)
        return Account(*task), Account(*task, name)

    def hold(
        self,
        budgets: Sequence[tuple[Account, Budget]],
        name: str,
        step_key: bytes,
        request: LlmRequest,
        estimate: Estimate,
        caller: ModelCaller,
    ) -> Holding:
        """
        Set a call's estimate aside in all of its budgets.

        :param budgets: what ``of`` gave.
        :param name: of its step.
        :param step_key: of its step.
        :param caller: knows prices.
        :raises BudgetExceededError: if one of them might not hold; nothing was sent.
        :raises AiflowConfigError: if a budget is in money and no price is known; nothing was sent.
        """
        made: list[tuple[Account, Hold]] = []
        try:
            for account, budget in budgets:
                amount = Spending(self._cost(budget, account, request, estimate, caller), estimate.tokens)
                hold = Hold(
                    amount,
                    self._session.taken.lease,
                    self._session.taken.generation,
                    step_key,
                    request.timeout + CALL_GRACE,
                )
                self.take(account, budget, hold, f"the call '{name}'")
                made.append((account, hold))
        except BaseException:
            self.settle(Holding(tuple(made)), NOTHING)
            raise
        return Holding(tuple(made))

    def take(self, account: Account, budget: Budget, hold: Hold, what: str) -> None:
        """
        Set one amount aside, once other calls have left enough of the budget.

        :param what: is paid by it, for messages.
        :raises BudgetExceededError: if the budget might not hold.
        :raises AttemptParked: if the slot goes back until others have ended.
        """
        session, said = self._session, False
        began = session.services.clock.monotonic()
        while True:
            held = self._patience.over(lambda: self._ledger.hold(account, budget, hold))
            if held.granted:
                return
            if held.open == NOTHING or not budget.fits(held.spent + hold.amount):
                raise _exceeded(account, budget, hold.amount, held, what)
            if not said:
                said = True
                session.services.host.log(
                    f"aiflow: {what} waits for other calls to end: the budget of {account} may not hold for all"
                )
            if session.services.clock.monotonic() - began > LONGEST_BUDGET_WAIT:
                session.gate.park(
                    session.services.settings.reschedule_delay,
                    f"the budget of {account} had no room for {what} beside others for {LONGEST_BUDGET_WAIT:.0f} s",
                )
            session.pause(LOOK_SECONDS)
            session.gate.check()

    def _cost(
        self, budget: Budget, account: Account, request: LlmRequest, estimate: Estimate, caller: ModelCaller
    ) -> Decimal:
        price = None
        if budget.cost is not None and isinstance(caller, KnowsPrices):
            price = caller.quote(request, estimate.tokens_in, estimate.tokens_out)
        if price is None:
            price = estimate.cost
        if price is None and budget.cost is not None:
            raise no_price(account, request)
        return price or Decimal(0)

    def settle(self, holding: Holding, spent: Spending | Usage | None) -> None:
        """
        Replace what was set aside.

        :param spent: what the call cost; ``None``: nobody knows, and the estimate counts.
        """
        for account, hold in holding.holds:
            amount = _amount(spent, hold)
            try:
                self._patience.over(
                    lambda account=account, hold=hold, amount=amount: self._ledger.settle(  # type: ignore[misc]
                        account, hold, amount, unknown=spent is None
                    )
                )
            except LedgerUnavailableError as error:
                # The hold lapses by itself and is settled by what the step recorded, else by the estimate.
                self._session.services.host.log(f"aiflow: what a call cost is settled later: {error}", warning=True)


def no_price(account: Account, request: LlmRequest) -> AiflowConfigError:
    """
    Say that a budget in money can't be kept.

    :param account: the budget's.
    :param request: names the connection.
    """
    return AiflowConfigError(
        f"the budget of {account} is in money, and no price is known for the model of connection "
        f"'{request.llm_conn_id}': nothing was sent. Give the budget in tokens, such as budget='200000 tokens'"
    )


def _amount(spent: Spending | Usage | None, hold: Hold) -> Spending:
    if spent is None:
        return hold.amount
    if isinstance(spent, Spending):
        return spent
    # What a provider does not tell counts as it was guessed.
    tokens = spent.tokens_in + spent.tokens_out or hold.amount.tokens
    return Spending(hold.amount.cost if spent.cost is None else spent.cost, tokens)


def _exceeded(account: Account, budget: Budget, wanted: Spending, held: Held, what: str) -> BudgetExceededError:
    unknown = ""
    if held.unknown != NOTHING:
        unknown = f" ({budget.shown(held.unknown)} of it set aside for calls whose outcome nobody knows)"
    return BudgetExceededError(
        f"the budget of {account} is {budget}: {budget.shown(held.spent)} is spent{unknown}, and {what} may "
        f"take {budget.shown(wanted)}. Nothing was sent for it. To go on, raise budget= and clear the task: what is "
        f"recorded is replayed. A lower max_tokens in model_settings makes the estimate smaller"
    )
