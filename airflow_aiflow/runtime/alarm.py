"""
One thread that calls back at given times, for every deadline of a process.

A timer thread for each call would cost more than the call's own bookkeeping; here an alarm that never rings costs a
heap entry. Alarms are handed over by a queue that a signal handler may use too, whatever it interrupted.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Seconds to wait for the thread's end; it only ever works for microseconds.
CLOSE_SECONDS = 1.0

#: Entries of the heap after which cancelled ones are thrown out: alarms of an hour would else pile up for an hour.
SWEEP_AT = 4096


class Alarm:
    """Be one pending call; ``cancel`` makes it ring for nobody."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    @property
    def silent(self) -> bool:
        """Whether it will ring for nobody."""
        return self._call is None

    def cancel(self) -> None:
        """Make the alarm silent."""
        self._call = None

    def ring(self) -> None:
        """Call back, once, unless cancelled."""
        call, self._call = self._call, None
        if call is not None:
            call()


_Entry = tuple[float, int, Alarm]


class AlarmClock:
    """Ring alarms from a daemon thread, started by ``open``."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name="aiflow-alarms", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def set(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """
        Call back later, from the alarm thread. Takes no lock, so that signal handlers may call it.

        :param seconds: from now.
        :param call: must be short.
        """
        alarm = Alarm(call)
        self._inbox.put((time.monotonic() + seconds, next(self._numbers), alarm))
        return alarm

    def close(self) -> None:
        """Ring nothing more and end the thread."""
        self._inbox.put(None)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        heap: list[_Entry] = []
        while True:
            try:
                entry = self._inbox.get(timeout=max(heap[0][0] - time.monotonic(), 0) if heap else None)
            except queue.Empty:
                _ring(heapq.heappop(heap)[2])
                continue
            if entry is None:
                return
            heapq.heappush(heap, entry)
            if len(heap) > SWEEP_AT:
                heap = [pending for pending in heap if not pending[2].silent]
                heapq.heapify(heap)


def _ring(alarm: Alarm) -> None:
    try:
        alarm.ring()
    except Exception:  # the thread must outlive it: other deadlines depend on it
        log.exception("aiflow: an alarm failed")
