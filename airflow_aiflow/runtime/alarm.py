"""
One thread that calls back at given times, for every deadline of a process.

A timer thread for each call would cost more than the call's own bookkeeping; here an alarm that never rings costs a
heap entry.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Alarm:
    """Be one pending call; ``cancel`` makes it ring for nobody."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Make the alarm silent."""
        self._call = None

    def ring(self) -> None:
        """Call back, once, unless cancelled."""
        call, self._call = self._call, None
        if call is not None:
            call()


class AlarmClock:
    """Ring alarms from a daemon thread that starts with the first one."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._heap: list[tuple[float, int, Alarm]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """
        Call back later, from the alarm thread.

        :param seconds: from now.
        :param call: must be short and must not raise.
        """
        alarm = Alarm(call)
        entry = (time.monotonic() + seconds, next(self._numbers), alarm)
        with self._wake:
            heapq.heappush(self._heap, entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="aiflow-alarms", daemon=True)
                self._thread.start()
            elif self._heap[0] is entry:
                self._wake.notify()
        return alarm

    def close(self) -> None:
        """Ring nothing more and end the thread."""
        with self._wake:
            self._closed = True
            self._heap.clear()
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closed and (not self._heap or self._heap[0][0] > time.monotonic()):
                    self._wake.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
                if self._closed:
                    return
                alarm = heapq.heappop(self._heap)[2]
            alarm.ring()
