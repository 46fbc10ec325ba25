"""Ask a ledger again that can't be reached now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import LedgerUnavailableError

R = TypeVar("R")

#: First and longest pause between two tries to reach the ledger: a restarted server is back within a second or two.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Patience:
    """
    Repeat calls while the ledger can't be reached.

    :param clock: waits.
    :param seconds: after which the last error is raised.
    :param hurried: whether this process is told to end: then nothing is waited for any longer.
    """

    clock: Clock
    seconds: float
    hurried: Callable[[], bool] = _never

    def over(self, call: Callable[[], R]) -> R:
        """
        Make a call.

        :param call: idempotent.
        :raises LedgerUnavailableError: when the patience is used up.
        """
        try:
            return call()
        except LedgerUnavailableError:
            if self.seconds <= 0:
                raise
        # Only now is tenacity's bookkeeping paid for: a recorded step has no time for it.
        import tenacity

        deadline = self.clock.monotonic() + self.seconds

        def used_up(_state: tenacity.RetryCallState) -> bool:
            return self.hurried() or self.clock.monotonic() >= deadline

        def sleep(seconds: float) -> None:
            self.clock.wait(seconds, until=self.hurried)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(LedgerUnavailableError),
            wait=tenacity.wait_random_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE),
            stop=used_up,
            sleep=sleep,
            reraise=True,
        )
        return retrying(call)
