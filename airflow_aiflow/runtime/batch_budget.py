"""
What a provider's batch may cost, held against its budgets from before its submission until its answers are taken.

The hold is no attempt's, for the batch outlives them: its id is made of the idempotency key that the batch bears, so
all attempts, and map indexes that share the batch, mean the same hold. It is settled before the answers are recorded:
who is killed in between takes the answers again, and finds nothing left to settle. One that nobody settles lapses after
the batch's time, and its estimate counts.

Not covered: a budget that a task is given while its batch is out already, which does not count that batch; a batch that
is submitted again after its hold has lapsed, which counts as two; an attempt that takes back its hold of a refused
submission in the moment in which a later attempt has taken over and is about to submit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from uuid import UUID

from airflow_aiflow.durable.budget import NOTHING, Account, Budget, Hold, Spending
from airflow_aiflow.durable.identity import EffectId, digest, idempotency_key
from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.llm.estimate import BYTES_PER_TOKEN, Estimates
from airflow_aiflow.llm.provider_batch import FORGOTTEN, ProviderBatch
from airflow_aiflow.runtime.budgets import Budgets, Holding, no_price
from airflow_aiflow.runtime.session import Session

#: Seconds beyond the time that a batch is given in which its answers are taken: the last look waits for a worker's
#: slot, and a large batch's answers take minutes to read.
TAKING_GRACE = 3600.0

#: No limit: for what may be spent already.
ANY_AMOUNT = Budget()


@dataclass(frozen=True, repr=False)
class BatchBudget:
    """
    Be the ``Payment`` of one batch.

    :param session: the attempt at work.
    :param budgets: the attempt's.
    :param effect: the batch's submission.
    :param request: of each prompt, without it; names the batch's own budget.
    :param batch: knows prices.
    :param prompts: all of them.
    :param seconds: from the submission, within which the batch ends or is given up.
    """

    session: Session
    budgets: Budgets
    effect: EffectId
    request: LlmRequest
    batch: ProviderBatch
    prompts: Sequence[str]
    seconds: float

    def set_aside(self, key: str, *, sent: bool) -> None:
        """
        Set the most that the batch may cost aside in all of its budgets.

        :param key: that the batch bears.
        :param sent: whether it may have been submitted before.
        :raises BudgetExceededError: if a budget might not hold; nothing was submitted.
        :raises AiflowConfigError: if a budget is in money and no price is known; nothing was submitted.
        """
        made: list[tuple[Account, Hold]] = []
        try:
            for account, budget in self._limits:
                if budget.cost is not None and self._cost is None:
                    raise no_price(account, self.request)
                hold = self._hold(account, key)
                self.budgets.take(account, ANY_AMOUNT if sent else budget, hold, f"the batch '{self.effect.name}'")
                made.append((account, hold))
        except BaseException:
            if not sent:
                self.budgets.settle(Holding(tuple(made)), NOTHING)
            raise

    def not_submitted(self, key: str) -> None:
        """
        Take back what was set aside.

        :param key: that the batch would have borne.
        """
        self.budgets.settle(self._holding(key), NOTHING)

    def failed(self, status: JobStatus) -> None:
        """
        Settle a batch that gave no answers: with nothing where the provider surely took none of its prompts.

        :param status: the provider's word.
        """
        counts = status.progress if isinstance(status.progress, dict) else None
        if status.state == "failed":
            free = status.message != FORGOTTEN and not (counts or {}).get("succeeded")
        else:
            free = counts is not None and not counts.get("succeeded")
        self._settle(NOTHING if free else None)

    def answered(self, usage: Usage, *, untold: bool) -> None:
        """
        Settle a batch with what its answers cost.

        :param usage: of all answers; a cost that is unknown counts as it was guessed.
        :param untold: whether the provider did not say of some answer what it took, so that the estimate counts.
        """
        if untold:
            self._settle(None)
        elif usage.cost is None:
            self._settle(usage)
        else:
            self._settle(Spending(usage.cost, usage.tokens_in + usage.tokens_out))

    def _settle(self, spent: Spending | Usage | None) -> None:
        found = self.session.recorder.effect(self.effect)
        if found is not None:
            self.budgets.settle(self._holding(idempotency_key(self.effect, found.repeat)), spent)

    @cached_property
    def _limits(self) -> tuple[tuple[Account, Budget], ...]:
        return self.budgets.of(self.effect.name, self.request)

    def _holding(self, key: str) -> Holding:
        """Give the holds in every account that the batch may have been held in, also where a budget= is gone since."""
        accounts = self.budgets.accounts(self.effect.name)
        return Holding(tuple((account, self._hold(account, key)) for account in accounts))

    def _hold(self, account: Account, key: str) -> Hold:
        # Other attempts, and other map indexes, make the same one.
        made_of = digest("batch hold", account.identity, key)
        amount = Spending(self._cost or Decimal(0), self._tokens)
        generation = self.session.taken.generation
        return Hold(amount, None, generation, made_of, self.seconds + TAKING_GRACE, UUID(bytes=made_of[:16]))

    @cached_property
    def _calls(self) -> Counter[tuple[int, int]]:
        """Count the prompts by the tokens that each and its answer may take."""
        # What earlier calls of this name took says nothing: a batch is recorded as one.
        estimates, calls = Estimates(), Counter[tuple[int, int]]()
        schema = "" if self.batch.schema is None else json.dumps(self.batch.schema)
        around = -(-len(schema.encode()) // BYTES_PER_TOKEN)
        for prompt in self.prompts:
            estimate = estimates.of(self.effect.name, replace(self.request, prompt=prompt))
            calls[estimate.tokens_in + around, estimate.tokens_out] += 1
        return calls

    @cached_property
    def _tokens(self) -> int:
        return sum((tokens_in + tokens_out) * number for (tokens_in, tokens_out), number in self._calls.items())

    @cached_property
    def _cost(self) -> Decimal | None:
        """The most in US dollars; ``None``: no price is known, or no budget asks for one."""
        if all(budget.cost is None for _, budget in self._limits):
            return None
        return self.batch.quote(self._calls)
