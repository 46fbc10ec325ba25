"""
Threads of the API server for what may wait long: they can be used up without any other route noticing.

FastAPI's shared threads serve every route of Airflow's, too; who holds all of them for a slow store stops them all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from fastapi import HTTPException

T = TypeVar("T")

#: Seconds after which whoever found no place should ask again: about what one large upload takes.
AGAIN = 5


class OwnThreads:
    """
    Run calls in threads that nobody else uses.

    :param name: what they are for.
    :param most: calls at once, in each worker of the API server.
    :param waiting: calls that may wait for a thread, which costs none; ``None``: any number.
    """

    def __init__(self, name: str, most: int, waiting: int | None = None) -> None:
        self._name, self._most, self._waiting = name, most, waiting
        #: One for each event loop, as a limiter belongs to one.
        self._limiter: RunVar[CapacityLimiter] = RunVar(f"aiflow {name}")
        #: Calls at work and waiting. The limiter's own count lags: who was let in waits in it a turn of the loop later.
        self._inside: RunVar[int] = RunVar(f"aiflow {name} inside", 0)

    async def run(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        """
        Run a call.

        :raises HTTPException: 503, if too many wait already.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(self._most)
            self._limiter.set(limiter)
        if self._waiting is not None and self._inside.get() >= self._most + self._waiting:
            raise HTTPException(503, f"too many {self._name} at once here: try again", {"Retry-After": str(AGAIN)})
        self._inside.set(self._inside.get() + 1)
        try:
            return await anyio.to_thread.run_sync(partial(call, *args, **named), limiter=limiter)
        finally:
            self._inside.set(self._inside.get() - 1)
