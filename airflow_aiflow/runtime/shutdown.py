"""
Carry the word that this process is to end from a signal handler to the attempt at work.

A worker that is shut down tells its tasks so, often twice within milliseconds, and kills them a while later. What is
in hand then is finished and recorded if it ends in time, nothing new starts, and the task comes back elsewhere. The
word may come in the middle of any code, before the attempt has begun or after it has ended: so it takes no lock, does
next to nothing, and can be given any number of times.

Not covered: a person's "mark failed" or "clear" sends the same signal, and is treated alike: what is in hand may still
be recorded until the supervisor's SIGKILL, some 5 s later. Airflow then refuses the hand-over, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable


class Shutdown:
    """Be what ``on_kill`` tells, and what an attempt listens to."""

    __slots__ = ("_asked", "_listener")

    def __init__(self) -> None:
        self._asked = False
        self._listener: Callable[[], None] | None = None

    @property
    def asked(self) -> bool:
        """Whether the process is to end."""
        return self._asked

    def ask(self) -> None:
        """Tell that the process is to end. Safe in a signal handler."""
        self._asked = True
        listener = self._listener
        if listener is not None:
            listener()

    def attach(self, listener: Callable[[], None]) -> None:
        """
        Have the word handed on, also where it came before.

        :param listener: takes no lock; may be called again while it runs.
        """
        self._listener = listener
        if self._asked:
            listener()

    def detach(self) -> None:
        """Hand nothing on any more."""
        self._listener = None
