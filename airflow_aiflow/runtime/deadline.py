"""
End a call at its deadline.

In the main thread a signal raises, in the author's code alone, also out of a blocking read. A coroutine is cancelled.
A worker thread can't be interrupted: its call counts as overrun, a late outcome is still recorded, and the process is
ended a little after the deadline. A call that has returned keeps its result, however late the signal comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from airflow_aiflow.runtime.alarm import AlarmClock
from airflow_aiflow.runtime.coroutines import due_in
from airflow_aiflow.runtime.interrupts import DEADLINE_SIGNAL, Interrupts

R = TypeVar("R")

#: Seconds that an overrun worker thread gets, beyond its deadline, to bring its outcome.
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
    :param on_overrun: called from the alarm thread when a worker thread's call did not end in time and grace.
    """

    def __init__(self, alarms: AlarmClock, interrupts: Interrupts, on_overrun: Callable[[str], None]) -> None:
        self._alarms = alarms
        self._interrupts = interrupts
        self._on_overrun = on_overrun
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
        alarm = self._alarms.set(seconds + OVERRUN_GRACE, lambda: self._on_overrun(str(error())))
        try:
            with due_in(seconds, error):
                return call()
        finally:
            alarm.cancel()

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
