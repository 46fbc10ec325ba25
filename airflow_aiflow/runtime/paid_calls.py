"""
One network attempt of a model call under its limit and its budgets: wait, set aside, ask, settle.

Every attempt takes a permit of its own, for a provider counts each. What is surely not served costs nothing; what broke
off or came too late may have been billed, and counts as its estimate.
"""

from __future__ import annotations

import threading
from functools import cached_property

from airflow_aiflow.durable.budget import NOTHING
from airflow_aiflow.durable.identity import digest
from airflow_aiflow.exceptions import ModelOutputError, ModelRequestError, ModelUnavailableError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest, ModelCaller
from airflow_aiflow.llm.estimate import Estimates
from airflow_aiflow.runtime.budgets import Budgets, Holding
from airflow_aiflow.runtime.current import current_unit
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.limiter import Limiter, Permit
from airflow_aiflow.runtime.replay import Spent
from airflow_aiflow.runtime.session import Session

#: Seconds that a call waits for its limit in the worker's slot: longer, and the slot goes back.
LONGEST_LIMIT_WAIT = 300.0


class PaidCalls:
    """
    Hold what the model calls of one attempt are paid and limited by.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._limiter: Limiter | None = None
        self._estimates: Estimates | None = None
        self.budgets = Budgets(session)

    @property
    def limiter(self) -> Limiter:
        """What lends permits; made at the first one, closed with the attempt."""
        session = self._session
        with self._lock:
            if self._limiter is None:
                clock = session.services.clock
                self._limiter = Limiter(
                    session.services.ledger.limits,
                    clock,
                    pause=lambda seconds, until: author(clock.wait, seconds, until=until),
                    say=session.services.host.log,
                )
                session.at_end.append(self._limiter.close)
            return self._limiter

    @property
    def estimates(self) -> Estimates:
        """What earlier calls tell of the next ones."""
        with self._lock:
            if self._estimates is None:
                self._estimates = Estimates(list(self._session.replay.steps.values()))
            return self._estimates

    @cached_property
    def wasted_before(self) -> Spent:
        """What earlier attempts of this generation paid for answers that gave nothing to record."""
        taken = self._session.taken
        if taken.lease.fence == 1:
            return Spent()
        found = self._session.services.ledger.spending.wasted(taken.lease, taken.generation)
        return Spent(found.calls, found.tokens_in, found.tokens_out, found.cost, found.unpriced)

    def caller(self, name: str, request: LlmRequest, caller: ModelCaller) -> ModelCaller:
        """
        Give who makes the calls of one step.

        :param name: of the step.
        :param request: names the limit and the budget of its map.
        :param caller: asks the model.
        """
        if request.rate_limit is None and not self.budgets.of(name, request):
            return caller
        return _OneCall(self, name, caller)

    def permit(self, name: str, tokens: int) -> Permit:
        """
        Wait for a limit.

        :param name: the limit's.
        :param tokens: that the call may take.
        """
        session, clock = self._session, self._session.services.clock
        began = clock.monotonic()

        def check() -> None:
            session.gate.check()
            if clock.monotonic() - began > LONGEST_LIMIT_WAIT:
                session.gate.park(
                    session.services.settings.reschedule_delay,
                    f"limit '{name}' left no room for {LONGEST_LIMIT_WAIT:.0f} s",
                )

        return self.limiter.permit(name, tokens, check=check, closing=lambda: session.gate.closing)


class _OneCall:
    """Be a ``ModelCaller`` that waits and pays."""

    def __init__(self, paid: PaidCalls, name: str, caller: ModelCaller) -> None:
        self._paid = paid
        self._name = name
        self._caller = caller

    def call(self, request: LlmRequest) -> LlmAnswer:
        estimate = self._paid.estimates.of(self._name, request)
        permit = Permit() if request.rate_limit is None else self._paid.permit(request.rate_limit, estimate.tokens)
        holding = Holding()
        try:
            budgets = self._paid.budgets.of(self._name, request)
            holding = self._paid.budgets.hold(budgets, self._name, _step_key(), request, estimate, self._caller)
        except BaseException:
            permit.end(tokens=0)
            raise
        try:
            answer = author(self._caller.call, request)  # a deadline of the author's ends it, as it does any call
        except (ModelUnavailableError, ModelRequestError):
            permit.end(tokens=0)
            self._paid.budgets.settle(holding, NOTHING)
            raise
        except ModelOutputError as error:
            usage = error.usage
            permit.end(tokens=None if usage is None else usage.tokens_in + usage.tokens_out)
            self._paid.budgets.settle(holding, usage)
            raise
        except BaseException:
            permit.end()
            self._paid.budgets.settle(holding, None)
            raise
        usage = answer.usage
        permit.end(tokens=usage.tokens_in + usage.tokens_out, requests=answer.requests)
        self._paid.budgets.settle(holding, usage)
        self._paid.estimates.learn(self._name, usage)
        return answer

    def close(self) -> None:
        """Leave the caller open: it is the process's."""


def _step_key() -> bytes:
    """Give the key of the step that is at work here: its body is a unit that is called by it."""
    name = current_unit().path[-1]
    try:
        return bytes.fromhex(name)
    except ValueError:  # a unit with a name of its own: its step is then not found, and the estimate counts
        return digest("unit", name)
