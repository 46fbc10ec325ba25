"""
A job that is paid under budgets: what it may cost is set aside before its submission is intended.

Whether there will be a submission at all is known in one place only: where an effect's next intent is about to be
written. An attempt that attaches to a job never comes there; one that submits again with the same idempotency key sets
the same hold aside once more, which is one hold.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from airflow_aiflow.durable.effect import OPEN_TO_INTENT, EffectRecord, EffectState
from airflow_aiflow.durable.identity import idempotency_key
from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.exceptions import LedgerError
from airflow_aiflow.runtime.effects import EffectCall


class Payment(Protocol):
    """Pay for a job."""

    def set_aside(self, key: str, *, sent: bool) -> None:
        """
        Set aside what the job may cost.

        :param key: the idempotency key of its submission.
        :param sent: whether an earlier submission with the key may have been applied: then it may cost by now, and
            no budget can stop it any more.
        :raises BudgetExceededError: if a budget might not hold; nothing was submitted.
        """

    def not_submitted(self, key: str) -> None:
        """
        Take back what was set aside: the submission was surely not applied.

        :param key: the idempotency key of the submission.
        """

    def failed(self, status: JobStatus) -> None:
        """
        Settle a job that has failed.

        :param status: what was said of it.
        """


class PaidSubmission(EffectCall):
    """Carry out the submission of a job under its budgets. ``payment`` is set before ``run``."""

    payment: Payment
    _held: str | None = None

    def run(self) -> Any:
        """
        Submit the job, or find it submitted.

        :return: the recorded result.
        :raises BudgetExceededError: if a budget might not hold; nothing was submitted.
        """
        try:
            return super().run()
        except Exception:
            with contextlib.suppress(LedgerError):  # then the hold lapses by itself
                self._take_back()
            raise

    def _unapproved(self) -> EffectRecord | None:
        found = super()._unapproved() or self._session.recorder.effect(self._effect)
        if found is None:
            self._set_aside(0, sent=False)
            return None
        if found.intent_no != self._seen or found.state not in OPEN_TO_INTENT:
            return found
        repeat = found.repeat + (found.state is not EffectState.FAILED)
        self._set_aside(repeat, sent=found.state is EffectState.FAILED and found.decision == "retry")
        return None

    def _set_aside(self, repeat: int, *, sent: bool) -> None:
        key = idempotency_key(self._effect, repeat)
        self._held = None
        self.payment.set_aside(key, sent=sent)
        self._held = key

    def _take_back(self) -> None:
        """Take the hold back where our own last call was surely refused; a later attempt's may be the same hold."""
        if self._held is None:
            return
        found = self._session.recorder.effect(self._effect)
        refused = found is not None and found.state is EffectState.FAILED and found.decision != "retry"
        if found is not None and refused and found.lease == self._session.taken.lease:
            self.payment.not_submitted(self._held)
