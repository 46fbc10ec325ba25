"""Share one look at the ledger between all who ask at about the same time, so that nobody can ask it to death."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from airflow_aiflow.exceptions import LedgerUnavailableError

T = TypeVar("T")

#: Age up to which a look is given again: well under a scraper's usual interval of 15 s or more.
FRESH_SECONDS = 5.0

#: How long to wait for somebody else's look: a scraper gives up after 10 s.
WAIT_SECONDS = 8.0


class Looks(Generic[T]):
    """
    Give the last look while it is fresh. Safe for use from several threads.

    :param look: takes a new one; may raise.
    :param clock: seconds.
    """

    def __init__(self, look: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._last: tuple[float, T] | None = None

    def get(self) -> T:
        """
        Give a fresh look.

        :raises LedgerUnavailableError: if somebody else's look takes too long.
        """
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            raise LedgerUnavailableError(f"a look at the ledger takes more than {WAIT_SECONDS:g} seconds")
        try:
            if self._last is not None and self._clock() - self._last[0] < FRESH_SECONDS:
                return self._last[1]
            found = self._look()
            self._last = self._clock(), found
            return found
        finally:
            self._lock.release()
