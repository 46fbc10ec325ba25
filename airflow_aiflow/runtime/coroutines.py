"""
Run an author's coroutines for the one, synchronous core.

An async task's event loop runs in the main thread. Each of its flow calls is carried out by the core in a thread of its
own; where the author's function is a coroutine function, the core's thread has it run on the loop and waits. A deadline
there cancels the coroutine, and what it brings all the same counts. Threads are no limited resource here: a call may
wait for calls inside it, which a pool of few threads would never reach. So each level has its own limit.

What a signal's handler raises must not be raised inside the loop, which would lose it or break: it is handed to the
loop, the task's body is cancelled, and then it is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextvars import ContextVar
from typing import Any, TypeVar, cast

R = TypeVar("R")

#: Flow calls at work at a time, for each unit that makes them: more only wait for the ledger.
MOST_CALLS = 32

#: Seconds that a cancelled coroutine gets to end, before the call that waits for it is given up; less than what an
#: overrun thread gets, after which the process is ended.
CANCEL_SECONDS = 5.0

#: Seconds that calls which are waited for no longer get to leave what the ledger must know of them.
LEAVE_SECONDS = 1.0

#: Seconds between two looks of a waiting thread whether it waits in vain, and of the loop whether a signal has come.
LOOK_SECONDS = 0.2

_driver: ContextVar[Driver | None] = ContextVar("aiflow_driver", default=None)
_room: ContextVar[asyncio.Semaphore | None] = ContextVar("aiflow_room", default=None)
#: The moment, of ``time.monotonic``, at which the call around is over, and what it then raises.
_deadline: ContextVar[tuple[float, Callable[[], Exception]] | None] = ContextVar("aiflow_deadline", default=None)


def drives() -> bool:
    """Say whether there is a loop that runs coroutines for the code here."""
    return _driver.get() is not None


def driven(value: Any) -> Any:
    """
    Run what an author's function gave, where it is a coroutine and there is a loop for it; else give it back.

    :param value: the result of a call.
    """
    driver = _driver.get()
    return driver.run(value) if driver is not None and asyncio.iscoroutine(value) else value


@contextlib.contextmanager
def due_in(seconds: float, error: Callable[[], Exception]) -> Iterator[None]:
    """
    Have coroutines that are run for this call cancelled when its time is over.

    :param seconds: from now.
    :param error: makes what is raised then.
    """
    token = _deadline.set((time.monotonic() + seconds, error))
    try:
        yield
    finally:
        _deadline.reset(token)


class Driver:
    """
    Carry calls between one event loop and the core's threads.

    :param loop: the running loop.
    :param given_up: whether what is at work is waited for no longer.
    :param on_loop: context variables that hold while a coroutine of the author's runs, ``in_core`` while the core does.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        given_up: Callable[[], bool],
        on_loop: Callable[[], object],
        in_core: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._given_up = given_up
        self._on_loop = on_loop
        self._in_core = in_core
        self._calls: set[asyncio.Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, work: Callable[[], R]) -> R:
        """
        Carry out a call of the core in a thread.

        Who waits may be cancelled; the call goes on and brings its record.

        :param work: the call.
        """
        async with _room.get() or contextlib.nullcontext():
            came: asyncio.Future[R] = self._loop.create_future()
            came.add_done_callback(self._forget)
            self._calls.add(came)
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(self._in_thread, work, came), name="aiflow-call", daemon=True
            ).start()
            return await asyncio.shield(came)

    def _in_thread(self, work: Callable[[], R], came: asyncio.Future[R]) -> None:
        _driver.set(self)
        self._in_core()
        try:
            value = work()
        except BaseException as error:  # handed to who waits, whatever it is
            self._tell(_fail, came, error)
        else:
            self._tell(_fulfil, came, value)

    def _tell(self, what: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what, *args)

    def _forget(self, came: asyncio.Future[Any]) -> None:
        self._calls.discard(came)
        if not came.cancelled():
            came.exception()  # seen: where nobody waits any more, it is recorded, or it was logged

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """
        Run a coroutine on the loop, from a thread of the core, and wait for it.

        :param coroutine: the author's.
        """
        ended: Future[R] = Future()
        task: list[asyncio.Task[R]] = []

        def start() -> None:
            self._on_loop()
            _room.set(asyncio.Semaphore(MOST_CALLS))
            task.append(self._loop.create_task(coroutine))
            self._tasks.add(task[0])
            task[0].add_done_callback(self._tasks.discard)
            task[0].add_done_callback(lambda done: _hand_over(done, ended))

        try:
            self._loop.call_soon_threadsafe(start)
        except RuntimeError:  # the loop is closed: the body has ended
            coroutine.close()
            raise asyncio.CancelledError from None
        due = _deadline.get()

        def late() -> bool:
            return due is not None and time.monotonic() >= due[0]

        if not _until(ended, lambda: self._given_up() or late()):
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(lambda: task[0].cancel())
            over = time.monotonic() + CANCEL_SECONDS
            _until(ended, lambda: time.monotonic() >= over)
        if ended.done() and not ended.cancelled():
            return ended.result()
        if due is not None and late():
            raise due[1]()
        raise asyncio.CancelledError

    def cancel_all(self) -> None:
        """Cancel every coroutine that is run for a call; on the loop."""
        for task in tuple(self._tasks):
            task.cancel()

    async def settle(self) -> None:
        """Wait for the calls that are at work, whoever waits for them: their outcomes are to be recorded."""
        while self._calls and not self._given_up():
            await asyncio.wait(tuple(self._calls), timeout=LOOK_SECONDS)
        self.cancel_all()
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=LEAVE_SECONDS)


def _until(ended: Future[Any], enough: Callable[[], bool]) -> bool:
    """Wait for a coroutine's end; ``False``: there was enough of it first."""
    while not ended.done() and not enough():
        wait_for((ended,), timeout=LOOK_SECONDS)
    return ended.done()


def _fulfil(came: asyncio.Future[R], value: R) -> None:
    if not came.done():
        came.set_result(value)


def _fail(came: asyncio.Future[Any], error: BaseException) -> None:
    if not came.done():
        came.set_exception(error if not isinstance(error, StopIteration) else RuntimeError("StopIteration"))


def _hand_over(done: asyncio.Task[R], ended: Future[R]) -> None:
    if done.cancelled():
        ended.cancel()
        ended.set_running_or_notify_cancel()
    elif (error := done.exception()) is not None:
        ended.set_exception(error)
    else:
        ended.set_result(done.result())


def run_body(
    body: Callable[[Driver], Awaitable[R]],
    make_driver: Callable[[asyncio.AbstractEventLoop], Driver],
    divert: Callable[[Callable[[BaseException], None] | None], None],
) -> R:
    """
    Run an async task's body on an event loop in this thread, to its end.

    :param body: the author's code.
    :param make_driver: makes the driver of the loop.
    :param divert: told where a signal's exception goes while the loop runs; ``None``: it is raised again.
    """

    posted: list[BaseException] = []

    async def main() -> R | None:
        loop = asyncio.get_running_loop()
        trouble: asyncio.Future[None] = loop.create_future()

        def post(error: BaseException) -> None:
            posted.append(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: it is raised below
                loop.call_soon_threadsafe(lambda: None if trouble.done() else trouble.set_result(None))

        driver = make_driver(loop)
        divert(post)
        _room.set(asyncio.Semaphore(MOST_CALLS))
        task = asyncio.ensure_future(body(driver))
        either: set[asyncio.Future[Any]] = {task, trouble}
        while not task.done() and not posted:
            # A signal that comes just before the loop blocks is not seen before it wakes.
            await asyncio.wait(either, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if posted:
            task.cancel()
            driver.cancel_all()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        await driver.settle()
        return None if posted else task.result()

    try:
        result = asyncio.run(main())
    except BaseException:
        if not posted:
            raise
    finally:
        divert(None)
    if posted:
        raise posted[0]
    return cast("R", result)
