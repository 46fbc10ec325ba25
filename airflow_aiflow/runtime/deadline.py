"""
End a call at its deadline.

In the main thread a signal raises, in the author's code alone, also out of a blocking read. A coroutine is cancelled.
A worker thread can't be interrupted. A call that has not returned a little after its deadline, wherever it runs, is
overrun: ``runtime/overrun.py`` ends the process, and where no thread of ours gets to run, the guard does. A call that
has returned keeps its result, however late the signal comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from airflow_aiflow.runtime.alarm import AlarmClock
from airflow_aiflow.runtime.coroutines import due_in
from airflow_aiflow.runtime.interrupts import DEADLINE_SIGNAL, Interrupts
from airflow_aiflow.runtime.vitals import Vitals

R = TypeVar("R")

#: Seconds that an overrun call gets, beyond its deadline, to bring its outcome, or to clean up.
OVERRUN_GRACE = 10.0


class _Token:
    __slots__ = ("active", "due")

    def __init__(self) -> None:
        self.active = True
        self.due = False


class _DeadlinePassed(BaseException):
    """Be raised by the signal; never leaves this module, so nested deadlines can't be mistaken for each other."""

    def __init__(self, token: _Token) -> None:
        self.token = token


class Deadlines:
    """
    Run calls under a deadline.

    :param alarms: who rings.
    :param interrupts: where signals may raise.
    :param on_overrun: called from the alarm thread when a call did not end in time and grace.
    :param vitals: shown the calls that have a deadline.
    :param depth: counts the units in hand of the calling thread.
    """

    def __init__(
        self,
        alarms: AlarmClock,
        interrupts: Interrupts,
        on_overrun: Callable[[str], None],
        vitals: Vitals,
        depth: Callable[[], int],
    ) -> None:
        self._alarms = alarms
        self._interrupts = interrupts
        self._on_overrun = on_overrun
        self._vitals = vitals
        self._depth = depth
        #: The calls that are overrun: their threads, and how many units in hand of these they lie inside.
        self._stuck: dict[object, tuple[int, int]] = {}
        #: Of the main thread's calls, the outermost first.
        self._tokens: list[_Token] = []
        self._cut: Callable[[], BaseException] | None = None
        self._installed = False

    def install(self) -> None:
        """Take the signal, where this is the main thread."""
        self._installed = self._interrupts.take(DEADLINE_SIGNAL, self._on_signal)

    def run(self, call: Callable[[], R], seconds: float | None, error: Callable[[], Exception]) -> R:
        """
        Run a call.

        :param call: the work; what of it is the author's is called by ``author``.
        :param seconds: its deadline from now; ``None``: none.
        :param error: makes what is raised, in the main thread, if the call did not return in time.
        """
        if seconds is None:
            return call()
        if self._installed and threading.current_thread() is threading.main_thread():
            return self._run_in_main(call, seconds, error)
        with self._watched(_Token(), seconds, error), due_in(seconds, error):
            return call()

    @property
    def stuck(self) -> dict[int, int]:
        """By thread, how many of its units in hand the innermost call lies inside that is overrun and not back."""
        return dict(sorted(self._stuck.copy().values()))

    @contextmanager
    def _watched(self, call: object, seconds: float, error: Callable[[], Exception]) -> Iterator[None]:
        """Tell of a call that has not returned a little after so many seconds."""
        where = (threading.get_ident(), self._depth())

        def over() -> None:
            self._stuck[call] = where
            self._vitals.returned(call)  # from here on this process ends it
            self._on_overrun(str(error()))

        self._vitals.calls(call, time.monotonic() + seconds)
        alarm = self._alarms.set(seconds + OVERRUN_GRACE, over)
        try:
            yield
        finally:
            alarm.cancel()
            self._vitals.returned(call)
            self._stuck.pop(call, None)

    def cut(self, error: Callable[[], BaseException]) -> None:
        """
        Raise once in the author's code of the main thread, as soon as that is where it is. From any thread.

        :param error: makes what is raised; called where it is raised.
        """
        if self._installed:
            self._cut = error
            self._interrupts.ring(DEADLINE_SIGNAL)

    def _run_in_main(self, call: Callable[[], R], seconds: float, error: Callable[[], Exception]) -> R:
        token = _Token()

        def ring() -> None:
            token.due = True
            self._interrupts.ring(DEADLINE_SIGNAL)

        self._tokens.append(token)
        alarm = self._alarms.set(seconds, ring)
        try:
            with self._watched(token, seconds, error):
                return call()
        except _DeadlinePassed as passed:
            if passed.token is not token:
                raise
            raise error() from None
        finally:
            alarm.cancel()
            self._tokens.remove(token)

    def _on_signal(self, _number: int, _frame: object) -> None:
        cut, self._cut = self._cut, None
        if cut is not None:
            raise cut()
        for token in self._tokens:
            if token.active and token.due:
                # Once: what the author does on the way out must not be cut short again.
                token.active = False
                raise _DeadlinePassed(token)
