"""
One thread that calls back at given times, for every deadline of a process.

A timer thread for each call would cost more than the call's own bookkeeping; here an alarm that never rings costs an
entry of a list. The thread is woken for an alarm only that is due before it would wake by itself: most calls are over
long before their deadline, and a thread that wakes takes the interpreter from the one that works. Alarms are handed
over without a lock, for a signal handler may set one, whatever it interrupted.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Seconds to wait for the thread's end; it only ever works for microseconds.
CLOSE_SECONDS = 1.0

#: Entries after which cancelled ones are thrown out: alarms of an hour would else pile up for an hour.
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
        #: What was set and the thread has not seen yet; append and popleft are atomic.
        self._fresh: deque[_Entry] = deque()
        #: Wakes the thread; ``True`` ends it.
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        #: Until when the thread sleeps, if nobody wakes it.
        self._sleeps_until = math.inf
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
        alarm, due = Alarm(call), time.monotonic() + seconds
        self._fresh.append((due, next(self._numbers), alarm))
        # In this order: the thread says until when it sleeps and then looks again whether there is anything fresh.
        if due < self._sleeps_until or len(self._fresh) > SWEEP_AT:
            self._wake.put(False)
        return alarm

    def close(self) -> None:
        """Ring nothing more and end the thread."""
        self._wake.put(True)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        heap: list[_Entry] = []
        ends = False
        while not ends:
            self._take_in(heap)
            self._sleeps_until = heap[0][0] if heap else math.inf
            if self._fresh:
                continue
            try:
                ends = self._wake.get(timeout=max(heap[0][0] - time.monotonic(), 0) if heap else None)
            except queue.Empty:
                _ring(heapq.heappop(heap)[2])

    def _take_in(self, heap: list[_Entry]) -> None:
        """Move what is fresh into the heap, but for what was cancelled meanwhile."""
        while self._fresh:
            entry = self._fresh.popleft()
            if not entry[2].silent:
                heapq.heappush(heap, entry)
        if len(heap) > SWEEP_AT:
            heap[:] = [pending for pending in heap if not pending[2].silent]
            heapq.heapify(heap)


def _ring(alarm: Alarm) -> None:
    try:
        alarm.ring()
    except Exception:  # the thread must outlive it: other deadlines depend on it
        log.exception("aiflow: an alarm failed")
