"""The machine's clock. Time asleep counts (CLOCK_BOOTTIME): an intent must not survive a suspended laptop or VM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

#: How often a wait looks at its condition: short against a heartbeat, long against a query.
POLL_SECONDS = 0.1


class SystemClock:
    """Give the time of this machine."""

    def __init__(self) -> None:
        self._never = threading.Event()
        self._clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def monotonic(self) -> float:
        """Give seconds since boot, time asleep included."""
        return time.clock_gettime(self._clock_id)

    def now(self) -> datetime:
        """Give the wall clock, UTC."""
        return datetime.now(UTC)

    def wait(self, seconds: float, *, until: Callable[[], bool] | None = None) -> bool:
        """
        Wait, interruptibly by signals.

        :param seconds: at most this long.
        :param until: polled meanwhile.
        :return: whether ``until`` became true.
        """
        deadline = self.monotonic() + seconds
        while True:
            if until is not None and until():
                return True
            left = deadline - self.monotonic()
            if left <= 0:
                return False
            self._never.wait(min(left, POLL_SECONDS) if until is not None else left)
