"""The machine's clock. Time asleep counts (CLOCK_BOOTTIME): an intent must not survive a suspended laptop or VM."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

#: How often a wait looks at its condition: short against a heartbeat, long against a query.
POLL_SECONDS = 0.1

#: Longest sleep in one piece: the kernel does not count time asleep in it.
PIECE_SECONDS = 5.0


class SystemClock:
    """Give the time of this machine."""

    def __init__(self) -> None:
        self._clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def monotonic(self) -> float:
        """Give seconds since boot, time asleep included."""
        return time.clock_gettime(self._clock_id)

    def now(self) -> datetime:
        """Give the wall clock, UTC."""
        return datetime.now(UTC)

    def wait(self, seconds: float, *, until: Callable[[], bool] | None = None) -> bool:
        """
        Wait, interruptibly by signals; no lock is held meanwhile.

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
            time.sleep(min(left, PIECE_SECONDS if until is None else POLL_SECONDS))
