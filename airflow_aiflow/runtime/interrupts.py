"""
Let a signal raise in the author's code alone, never in ours.

Python runs signal handlers between any two bytecodes of the main thread. One that raises (a deadline, Airflow's own
time-out, Ctrl-C) would leave a lock of ours held, a connection out of its pool or a paid outcome unrecorded. So every
handler asks first *where* the main thread is: the nearest frame that is either the call of the author's code or a
module of ours decides. In ours the signal is held and rung again a little later. Nothing has to be switched on or off
around our code, so nothing can be left in the wrong position.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from airflow_aiflow.runtime.alarm import AlarmClock

P = ParamSpec("P")
R = TypeVar("R")
Handler = Callable[[int, FrameType | None], object]

#: Whose handlers raise: Ctrl-C, the end of the process, Airflow's ``execution_timeout``.
RAISING = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)

#: Ours, for deadlines; Airflow uses SIGALRM for its own.
DEADLINE_SIGNAL = signal.SIGUSR2

#: Seconds until a held signal is rung again: most of our calls are shorter, and nobody waits for less.
AGAIN_SECONDS = 0.02

_OURS = ("airflow_aiflow.runtime.", "airflow_aiflow.storage.", "airflow_aiflow.durable.")

#: A wait belongs to who waits, so the clock's frames decide nothing.
_NEUTRAL = frozenset({"airflow_aiflow.runtime.clock"})


def author(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """
    Call the author's code, or wait as long as an author may wish: here, and only below, a signal may raise.

    :param fn: what to call; it must hold no lock of ours.
    """
    return fn(*args, **kwargs)


def in_our_code(frame: FrameType | None) -> bool:
    """
    Say whether the main thread is in code of ours.

    :param frame: where a signal found it.
    """
    while frame is not None:
        if frame.f_code is author.__code__:
            return False
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(_OURS) and name not in _NEUTRAL:
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """
    Stand before the process's signal handlers while a flow is open. Does nothing in other threads than the main one.

    :param alarms: rings held signals again.
    """

    def __init__(self, alarms: AlarmClock) -> None:
        self._alarms = alarms
        self._main = threading.main_thread()
        self._before: dict[int, object] = {}
        self._handlers: dict[int, Handler] = {}
        self._held: set[int] = set()
        self._notice: Callable[[], None] | None = None
        self._diverted: Callable[[BaseException], None] | None = None

    @property
    def held(self) -> bool:
        """Whether a signal waits for our code to come to its end: then no outcome is waited for any longer."""
        return bool(self._held - {signal.SIGTERM}) if self._notice else bool(self._held)

    def announce(self, notice: Callable[[], None]) -> None:
        """
        Have SIGTERM told at once, wherever it arrives, beside its handler: what is in hand then gets its time.

        :param notice: takes no lock and raises nothing.
        """
        self._notice = notice

    def divert(self, post: Callable[[BaseException], None] | None) -> None:
        """
        Hand on what a handler raises instead of raising it: an event loop runs in the main thread.

        :param post: may be called in a signal handler; ``None``: it is raised again.
        """
        self._diverted = post

    def open(self) -> None:
        """Take the signals whose handlers may raise."""
        for number in RAISING:
            handler = signal.getsignal(number)
            if callable(handler):
                self.take(number, handler)

    def take(self, number: int, handler: Handler) -> bool:
        """
        Have a handler called for a signal, outside our code.

        :param number: the signal.
        :param handler: may raise.
        :return: whether signals reach this thread at all.
        """
        if threading.current_thread() is not self._main:
            return False
        self._handlers[number] = handler
        self._before[number] = signal.signal(number, self._on_signal)
        return True

    def close(self) -> None:
        """Put the former handlers back, and call those whose signals are held still."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                # A late ring must not end the process, which is what the signal does by default.
                late = number == DEADLINE_SIGNAL and not callable(before)
                signal.signal(number, signal.SIG_IGN if late else before)  # type: ignore[arg-type]
        self._held.discard(DEADLINE_SIGNAL)
        self.deliver()

    def deliver(self) -> None:
        """Call the handlers of held signals, where our code is about to start something and holds nothing."""
        if self._held and threading.current_thread() is self._main:
            for number in tuple(self._held):
                self._held.discard(number)
                self._handlers[number](number, sys._getframe())

    def ring(self, number: int) -> None:
        """
        Send the main thread a signal, from any thread.

        :param number: the signal.
        """
        if self._main.ident is not None and self._main.is_alive():
            with contextlib.suppress(OSError):
                signal.pthread_kill(self._main.ident, number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self._notice is not None:
            self._notice()
        if self._diverted is not None:
            try:
                self._handlers[number](number, frame)
            except BaseException as error:  # whatever it is, the loop must not meet it
                self._diverted(error)
            return
        if in_our_code(frame):
            self._held.add(number)
            self._alarms.set(AGAIN_SECONDS, lambda: self.ring(number))
            return
        self._held.discard(number)
        self._handlers[number](number, frame)
