"""
Run coroutines for callers in any thread on one event loop of our own.

The client's connection pool belongs to the loop on which it is used, so one loop lets all threads share it. A caller
waits on a lock: in the main thread a signal that raises ends the wait at once, which it could not do inside a loop (a
loop swallows what is raised inside its callbacks), and a loop that runs in the caller's thread already is no obstacle.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

#: Seconds that calls in flight get to end when the loop is closed.
CLOSE_SECONDS = 5.0


class LoopBusyError(Exception):
    """Say that the loop did not come to a coroutine's end in time: something blocks its thread."""


class LoopThread:
    """
    Hold an event loop and the daemon thread that runs it; both end with ``close`` or with the last reference.

    :param name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop)
        self._finalizer.atexit = False

    def run(self, work: Callable[[], Coroutine[Any, Any, R]], seconds: float) -> R:
        """
        Run a coroutine and wait for it.

        :param work: makes the coroutine.
        :param seconds: after which it is cancelled.
        :raises LoopBusyError: if it did not end in time.
        :raises concurrent.futures.CancelledError: if the loop was closed meanwhile.
        :raises RuntimeError: if called from inside the loop, where waiting would never end.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a model call can't be made from inside another model call's own callback or validator")
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            if future not in concurrent.futures.wait([future], seconds).done:
                raise LoopBusyError(f"the event loop did not end within {seconds:g} s what it was given")
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is in flight and end the thread."""
        self._finalizer()
        self._thread.join(CLOSE_SECONDS)


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # closed already
        loop.call_soon_threadsafe(loop.stop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
