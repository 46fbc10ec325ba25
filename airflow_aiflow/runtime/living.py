"""Look at a process and signal exactly that one, whoever gets its pid later. Standard library only: see the guard."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple


class Seen(NamedTuple):
    """Tell what ``/proc`` says of a process."""

    state: str
    parent: int
    group: int
    start: int
    name: str


def look(pid: int) -> Seen | None:
    """
    Look at a process.

    :param pid: the process.
    :return: ``None`` where it is gone, or dead and not yet reaped.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            stat = file.read()
    except OSError:
        return None
    # The command's name stands in brackets and may hold anything; the fields after it are numbers.
    before, _, after = stat.rpartition(")")
    fields = after.split()
    if fields[0] in ("Z", "X"):
        return None
    name = before.partition("(")[2]
    return Seen(state=fields[0], parent=int(fields[1]), group=int(fields[2]), start=int(fields[19]), name=name)


class Process:
    """
    Be the task process, however its pid is used later.

    :param pid: its pid.
    :param start: when it started, in ticks since boot.
    """

    def __init__(self, pid: int, start: int) -> None:
        self.pid = pid
        self._start = start
        try:
            self.descriptor: int | None = os.pidfd_open(pid)
        except OSError:  # an old kernel, a strict sandbox, or it is gone: then its start time alone tells
            self.descriptor = None

    def state(self) -> str | None:
        """Give its state as one letter; ``None``: it is dead."""
        seen = look(self.pid)
        return seen.state if seen is not None and seen.start == self._start else None

    def parent(self) -> int | None:
        """Give its parent's pid; ``None``: it is dead."""
        seen = look(self.pid)
        return seen.parent if seen is not None and seen.start == self._start else None

    def send(self, number: int) -> None:
        """
        Send a signal, to this very process.

        :param number: the signal.
        """
        with contextlib.suppress(ProcessLookupError):
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, number)
            elif self.state() is not None:
                os.kill(self.pid, number)

    def becomes(self, states: str, seconds: float) -> bool:
        """
        Wait for a state.

        :param states: letters; empty: its death.
        :param seconds: at most this long.
        """
        deadline = time.monotonic() + seconds
        while (state := self.state()) is not None and state not in tuple(states):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return state is not None or not states
