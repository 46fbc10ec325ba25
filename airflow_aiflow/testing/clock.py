"""A clock that a test moves; waiting moves it, so no test sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

#: How far a wait on a condition moves the clock between two looks.
STEP_SECONDS = 0.25


class ManualClock:
    """
    Stand still until somebody waits or moves it.

    :param start: the wall clock at the beginning.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._seconds = 1000.0
        self._lock = threading.Lock()
        #: Every wait that was asked for, in seconds.
        self.waits: list[float] = []

    def monotonic(self) -> float:
        """Give seconds since boot."""
        return self._seconds

    def now(self) -> datetime:
        """Give the wall clock, UTC."""
        return self._start + timedelta(seconds=self._seconds - 1000.0)

    def advance(self, seconds: float) -> None:
        """
        Move the clock.

        :param seconds: forwards.
        """
        with self._lock:
            self._seconds += seconds

    def wait(self, seconds: float, *, until: Callable[[], bool] | None = None) -> bool:
        """
        Wait by moving the clock.

        :param seconds: at most this long.
        :param until: looked at as the clock moves.
        """
        self.waits.append(seconds)
        if until is None:
            self.advance(seconds)
            return False
        deadline = self._seconds + seconds
        while not until():
            if self._seconds >= deadline:
                return False
            self.advance(min(STEP_SECONDS, deadline - self._seconds))
        return True
