"""
Whether something new may start, and what is in hand.

Closed for good when a later attempt holds the fence or asks for it, when the attempt is parked, and when the process is
told to end: then nothing starts, what is in hand is brought to its record, and the attempt ends. So it is by a person
who holds or cancels the run; until a start was refused for it, that word may be taken back. Whatever an author's code
does with the signal that says so, the attempt's end is decided by what the gate remembers.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import (
    AttemptCancelled,
    AttemptParked,
    AttemptSuperseded,
    FlowClosedError,
    FlowError,
    FlowSignal,
)
from airflow_aiflow.runtime.vitals import Vitals


class Gate:
    """
    Stand before every start.

    :param clock: for the age of the last progress.
    :param vitals: shown what is in hand; ``None``: nobody looks.
    """

    def __init__(self, clock: Clock, vitals: Vitals | None = None) -> None:
        self._clock = clock
        self.vitals = vitals or Vitals.private()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        #: For each unit in hand the moment until which its own timeout lets it be.
        self._in_hand: dict[object, float] = {}
        #: For each unit in hand that names a timeout, its seconds.
        self._timeouts: dict[object, float] = {}
        #: For each unit in hand the thread that works on it.
        self._threads: dict[object, int] = {}
        self._superseded: str | None = None
        self._parked: AttemptParked | None = None
        self._shut: AttemptParked | None = None
        #: Whether a start was refused, or what was in hand was cut off, because the process is to end.
        self._cut_short = False
        self._overdue = False
        #: As what the attempt ends because of what a person wishes of the run, and whether a start was refused for it.
        self._wish: FlowSignal | None = None
        self._heeded: FlowSignal | None = None
        #: Whether effects are taken back: that goes on to its end.
        self._undoing = False
        self._ended: str | None = None
        self._progress_at = clock.monotonic()
        self._leased_until = float("inf")
        self._renew: Callable[[], object] = lambda: None
        self.step: str | None = None

    def check(self, *, start: bool = True, replay: bool = False) -> None:
        """
        Refuse a start where there is none any more.

        :param start: whether something new would start; the end of the body may still be recorded in a shutdown.
        :param replay: whether it may be but a replay: a cancelled attempt goes up to what is not recorded, so that it
            knows what it can take back.
        :raises AttemptSuperseded: if a later attempt is at work.
        :raises AttemptParked: if the process is to end, or a person holds the run.
        :raises AttemptCancelled: if a person cancelled the run.
        :raises FlowClosedError: if the flow has ended or is parked.
        :raises FlowError: in a forked child that uses its parent's flow.
        """
        if self.forked:
            raise FlowError(
                "a forked child uses its parent's flow: call flow methods in the task process alone, "
                "or use flow.map, which runs in threads"
            )
        if self._superseded is not None:
            raise AttemptSuperseded(self._superseded)
        if self._ended is not None:
            raise FlowClosedError(f"this flow {self._ended}; no further call is possible")
        if start and self._shut is not None:
            self._cut_short = True
            raise AttemptParked(self._shut.delay, self._shut.why)
        wish = self._wish
        if start and wish is not None and not (replay and isinstance(wish, AttemptCancelled)):
            self._heeded = self._heeded or wish
            raise self._heeded

    @contextmanager
    def hand(self, step: str, timeout: float | None = None, *, start: bool = True) -> Iterator[None]:
        """
        Hold a unit in hand until its outcome is recorded.

        :param step: its name, shown as the progress.
        :param timeout: seconds that the unit may take; ``None``: it names none.
        :param start: whether this is something new.
        """
        if start and self._clock.monotonic() > self._leased_until:
            # No beat came through for a whole lease: the process may have been stopped and thawed, and another attempt
            # be at work. The heartbeat's own thread would tell a moment too late.
            self._renew()
        unit = object()
        with self._lock:
            self.check(start=start)
            self._in_hand[unit] = self._clock.monotonic() + (timeout or 0.0)
            if timeout is not None:
                self._timeouts[unit] = timeout
            self._threads[unit] = threading.get_ident()
            self.step = step
            self._show()
        try:
            yield
        finally:
            with self._lock:
                del self._in_hand[unit]
                self._forget_step()
                self._timeouts.pop(unit, None)
                del self._threads[unit]
                self._show()
                self._progress_at = self._clock.monotonic()

    def _forget_step(self) -> None:
        """Name no step where none is in hand: else the silence of the author's own code would be held against it."""
        if not self._in_hand:
            self.step = None

    def hold(self, outcomes: object, step: str) -> None:
        """
        Hold outcomes in hand whose commit is near. Never refused: they are there.

        :param outcomes: names them; held until ``drop``.
        :param step: shown as the progress.
        """
        with self._lock:
            self._in_hand[outcomes] = 0.0
            self.step = step
            self._show()

    def drop(self, outcomes: object) -> None:
        """
        Note that outcomes are recorded, or kept elsewhere.

        :param outcomes: what was held.
        """
        with self._lock:
            self._in_hand.pop(outcomes, None)
            self._forget_step()
            self._show()
            self._progress_at = self._clock.monotonic()

    def _show(self) -> None:
        self.vitals.in_hand(max(self._in_hand.values(), default=None), self.step)

    def depth(self) -> int:
        """Count the units in hand of this thread: the last one lies inside the others."""
        thread = threading.get_ident()
        with self._lock:
            return sum(1 for other in self._threads.values() if other == thread)

    def busy_beside(self, stuck: Mapping[int, int]) -> bool:
        """
        Say whether more is in hand than what waits for calls that do not return.

        :param stuck: how many units of a thread, the outermost first, such a call lies inside; by thread.
        """
        with self._lock:
            held = Counter(self._threads.get(unit, -1) for unit in self._in_hand)
        return any(count > stuck.get(thread, 0) for thread, count in held.items())

    def leased(self, until: float, renew: Callable[[], object]) -> None:
        """
        Note up to when the lease is surely ours.

        :param until: a moment of the clock.
        :param renew: asks the ledger, and calls ``supersede`` where it is another's; used before a later start.
        """
        self._leased_until, self._renew = until, renew

    def supersede(self, why: str) -> None:
        """
        Let nothing start any more.

        :param why: for the log.
        """
        with self._lock:
            self._superseded = self._superseded or why

    def park(self, delay: float, why: str) -> NoReturn:
        """
        Let nothing start any more: the slot goes back.

        :param delay: seconds after which to come back.
        :param why: for the log.
        :raises AttemptParked: always.
        """
        self.leave(AttemptParked(delay, why))

    def leave(self, signal: AttemptParked) -> NoReturn:
        """
        Let nothing start any more: the slot goes back.

        :param signal: says when to come back, and what is asked meanwhile.
        :raises AttemptParked: always.
        """
        with self._lock:
            self._parked = self._parked or signal
            self._ended = self._ended or "is parked"
        raise signal

    def shut(self, delay: float, why: str) -> None:
        """
        Let nothing start any more: the process is to end. Takes no lock, for a signal handler calls it.

        :param delay: seconds after which to come back.
        :param why: for the log and the ledger.
        """
        if self._shut is None:
            self._shut = AttemptParked(delay, why)

    def ask(self, wish: FlowSignal | None) -> None:
        """
        Let nothing start, as long as a person wishes so.

        :param wish: as what the attempt then ends; ``None``: nobody wishes anything, or no longer.
        """
        with self._lock:
            if self._heeded is None and not self._undoing:
                self._wish = wish

    def reopen(self) -> None:
        """Let start what takes effects back, whatever a person wishes; where it was to be cancelled, it ends so."""
        with self._lock:
            if isinstance(self._wish, AttemptCancelled):
                self._heeded = self._heeded or self._wish
            self._wish, self._undoing = None, True

    def heed_nobody(self) -> None:
        """Let start whatever is wished of the run: what is done here is a person's word itself."""
        with self._lock:
            self._wish, self._undoing = None, True

    def cut(self) -> None:
        """Note that what is in hand had its time in a shutdown, and is waited for no longer. Takes no lock."""
        self._cut_short = self._overdue = True

    def end(self, how: str) -> None:
        """
        Close the flow.

        :param how: such as ``has ended``.
        """
        with self._lock:
            self._ended = how

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened the flow."""
        return os.getpid() != self._pid

    @property
    def superseded(self) -> str | None:
        """Why nothing starts any more; ``None``: no later attempt is known."""
        return self._superseded

    @property
    def signal(self) -> FlowSignal | None:
        """As what the attempt must end, whatever the author's code made of it; ``None``: as the code says."""
        if self._superseded is not None:
            return AttemptSuperseded(self._superseded)
        if self._parked is None and self._shut is not None and self._cut_short:
            return AttemptParked(self._shut.delay, self._shut.why)
        return self._parked or self._heeded

    @property
    def cancelled(self) -> bool:
        """Whether a person wishes this attempt to end, also where no start was refused for it yet."""
        return isinstance(self._heeded or self._wish, AttemptCancelled)

    @property
    def closed(self) -> bool:
        """Whether nothing may start any more, whatever a person wishes."""
        return self._superseded is not None or self._parked is not None or self._shut is not None

    @property
    def closing(self) -> bool:
        """Whether nothing may start now, so that no wait makes sense."""
        return self.closed or self._wish is not None

    @property
    def overdue(self) -> bool:
        """Whether what is in hand had its time in a shutdown."""
        return self._overdue

    @property
    def quiet(self) -> bool:
        """Whether nothing is in hand."""
        return not self._in_hand

    @property
    def in_hand_until(self) -> float:
        """The moment, of the clock, until which the timeouts of what is in hand run; the past where there are none."""
        with self._lock:
            return max(self._in_hand.values(), default=0.0)

    @property
    def step_timeout(self) -> float | None:
        """The longest time that something in hand may take by its own word, in seconds; ``None``: nothing names one."""
        with self._lock:
            return max(self._timeouts.values(), default=None)

    @property
    def idle(self) -> float:
        """Seconds since the last unit was recorded."""
        return self._clock.monotonic() - self._progress_at
