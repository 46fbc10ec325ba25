"""
Wait for an answer awake, as long as answers usually come at once.

A thread that sleeps is woken late, and where the server is on the same machine, mostly on the processor on which that
has just worked, whose caches then hold the server's program and not ours: together that costs as much as all the rest
of a recorded step. So who expects an answer within a moment looks for it without a pause. Where answers take longer,
because the server is far or the machine is busy, hardly anybody stays awake for them.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

_Result = TypeVar("_Result")

#: Seconds for which an answer is waited for awake: a commit to a disk in the same rack takes less, and nobody else gets
#: much from a processor in so short a time.
AWAKE = 0.001

#: Waits that are slept after one that was awake in vain; twice as many after each further one.
FIRST_REST, LONGEST_REST = 4, 64


#: Where a container sees its own control group.
CONTROL_GROUP = Path("/sys/fs/cgroup")


def may_look() -> bool:
    """Say whether others could work while we look: not with one processor alone, nor where processor time is dealt."""
    return (
        hasattr(os, "sched_yield")
        and hasattr(os, "sched_getaffinity")
        and len(os.sched_getaffinity(0)) > 1
        and not _is_dealt()
    )


def _is_dealt() -> bool:
    """
    Say whether a container may use so much processor time and no more: what is looked away, all in it lack.

    Not covered: a limit set by a group above the container's own.
    """
    with suppress(OSError):
        return not (CONTROL_GROUP / "cpu.max").read_text().startswith("max")
    with suppress(OSError):
        return not (CONTROL_GROUP / "cpu" / "cpu.cfs_quota_us").read_text().startswith("-1")
    return False


class AwakeWait:
    """
    Wait until there is something to read. For one thread at a time.

    :param fileno: of a socket.
    """

    def __init__(self, fileno: int) -> None:
        self._poll = select.poll()
        self._poll.register(fileno, select.POLLIN)
        self._may = may_look()
        #: Waits that are still slept, and how many it will be after the next one that was awake in vain.
        self._resting, self._rest = 0, FIRST_REST

    def ready(self) -> bool:
        """Say whether there is something to read now; an end of the connection is."""
        return bool(self._poll.poll(0))

    def until_ready(self, seconds: float) -> bool:
        """
        Wait.

        :param seconds: at most this long.
        :return: whether there is something to read.
        """
        if self._may and self._awake():
            return True
        return bool(self._poll.poll(seconds * 1000))

    def before(self, gen: PQGen[_Result]) -> Generator[Any, Any, _Result]:
        """
        Pass the driver's waiting on where nothing came while we were awake.

        :param gen: of the driver.
        """
        try:
            wish = next(gen)
            while True:
                wish = gen.send(Ready.R if wish == Wait.R and self._may and self._awake() else (yield wish))
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _awake(self) -> bool:
        """Look without a pause, unless it was in vain lately; others that wait for this processor go first."""
        if self._resting:
            self._resting -= 1
            return False
        poll, until = self._poll.poll, time.monotonic() + AWAKE
        while not poll(0):
            if time.monotonic() > until:
                self._resting, self._rest = self._rest, min(self._rest * 2, LONGEST_REST)
                return False
            os.sched_yield()
        self._rest = FIRST_REST
        return True
