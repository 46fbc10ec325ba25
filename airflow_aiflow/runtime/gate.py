"""
Whether something new may start, and what is in hand.

Closed for good when a later attempt holds the fence or asks for it: then nothing starts, what is in hand is brought to
its record, and the attempt ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import AttemptSuperseded, FlowClosedError, FlowError


class Gate:
    """
    Stand before every start.

    :param clock: for the age of the last progress.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._in_hand = 0
        self._superseded: str | None = None
        self._ended: str | None = None
        self._progress_at = clock.monotonic()
        self.step: str | None = None

    def check(self) -> None:
        """
        Refuse a start where there is none any more.

        :raises AttemptSuperseded: if a later attempt is at work.
        :raises FlowClosedError: if the flow has ended.
        :raises FlowError: in a forked child that uses its parent's flow.
        """
        if self._superseded is not None:
            raise AttemptSuperseded(self._superseded)
        if self._ended is not None:
            raise FlowClosedError(f"this flow {self._ended}; no further call is possible")
        if os.getpid() != self._pid:
            raise FlowError(
                "a forked child uses its parent's flow: call flow methods in the task process alone, "
                "or use flow.map, which runs in threads"
            )

    @contextmanager
    def hand(self, step: str) -> Iterator[None]:
        """
        Hold a unit in hand until its outcome is recorded.

        :param step: its name, shown as the progress.
        """
        with self._lock:
            self.check()
            self._in_hand += 1
            self.step = step
        try:
            yield
        finally:
            with self._lock:
                self._in_hand -= 1
                self._progress_at = self._clock.monotonic()

    def supersede(self, why: str) -> None:
        """
        Let nothing start any more.

        :param why: for the log.
        """
        with self._lock:
            self._superseded = self._superseded or why

    def end(self, how: str) -> None:
        """
        Close the flow.

        :param how: such as ``has ended`` or ``is parked``.
        """
        with self._lock:
            self._ended = how

    @property
    def superseded(self) -> str | None:
        """Why nothing starts any more; ``None``: it may."""
        return self._superseded

    @property
    def ended(self) -> bool:
        """Whether the flow has ended by itself."""
        return self._ended is not None

    @property
    def quiet(self) -> bool:
        """Whether nothing is in hand."""
        return self._in_hand == 0

    @property
    def idle(self) -> float:
        """Seconds since the last unit was recorded."""
        return self._clock.monotonic() - self._progress_at
