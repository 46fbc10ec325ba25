"""
The same function over many items, in threads, each item a unit of its own.

Keys and occurrence numbers are taken in list order before a worker starts, so the order in which workers finish never
decides what an item replays. Replays need no worker. Only as many items as workers are in hand, so a generator is read
as it is needed. Whatever ends a map early, what is in hand is recorded first and what never began gives its place back.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, TypeVar

from airflow_aiflow.durable.policy import check_name
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import StepCall, give_back, prepare, run_live

T = TypeVar("T")

#: Items per worker that are prepared ahead, so that a worker never waits for the list.
AHEAD = 2

#: Seconds between two looks whether a signal has come, or what is in hand has had its time in a shutdown.
LOOK_SECONDS = 0.2


class MapRun:
    """
    Run calls in order, several at a time.

    :param session: the attempt at work.
    :param max_workers: threads.
    """

    def __init__(self, session: Session, max_workers: int) -> None:
        self._session = session
        self._most = max_workers * AHEAD
        self._pool = ThreadPoolExecutor(max_workers, thread_name_prefix="aiflow-map")
        self._results: dict[int, Any] = {}
        self._failed: dict[int, BaseException] = {}
        #: What has a place, by its number in the list.
        self._pending: dict[Future[Any], tuple[int, Slot]] = {}
        #: A queue whose waiting can be interrupted by a signal, which a future's own waiting can't safely be.
        self._ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def over(self, calls: Iterator[StepCall]) -> list[Any]:
        """
        Give the results in the order of the items.

        :param calls: made lazily.
        :raises BaseException: the first failure in list order, after what is in hand was recorded.
        """
        try:
            count = self._start_all(calls)
            self._collect(most=0)
        finally:
            self._leave()
            # What is left never began, or nobody waited for its end.
            for future, (_, slot) in self._pending.items():
                if future.cancelled():
                    give_back(self._session, slot)
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._results[index] for index in range(count)]

    def _start_all(self, calls: Iterator[StepCall]) -> int:
        count = 0
        try:
            while not self._failed:
                call = next(calls, None)
                if call is None:
                    break
                self._session.gate.check()
                self._start(count, call)
                count += 1
                self._collect(most=self._most)
        except Exception as error:
            # A replayed item that can't be read, a generator of the author's that raised, a superseded attempt.
            self._failed[count] = error
            self._cancel()
        except BaseException:
            self._cancel()
            raise
        return count

    def _start(self, number: int, call: StepCall) -> None:
        done, value = prepare(self._session, call)
        if done:
            self._results[number] = value
            return
        context = contextvars.copy_context()
        future = self._pool.submit(context.run, run_live, self._session, call, value)
        self._pending[future] = (number, value)
        future.add_done_callback(self._ended.put)

    def _collect(self, *, most: int) -> None:
        """Take finished items until at most ``most`` are in hand, or none after a failure."""
        try:
            while self._pending and (len(self._pending) > most or self._failed):
                self._take(self._next_ended())
        except BaseException:
            self._cancel()
            raise

    def _next_ended(self) -> Future[Any]:
        while True:
            # A signal that comes just before the thread blocks is not seen before it wakes.
            with contextlib.suppress(queue.Empty):
                return author(self._ended.get, True, LOOK_SECONDS)

    def _take(self, future: Future[Any]) -> None:
        number, slot = self._pending.pop(future)
        if future.cancelled():
            give_back(self._session, slot)
            return
        error = future.exception()
        if error is None:
            self._results[number] = future.result()
        else:
            self._failed[number] = error
            self._cancel()

    def _leave(self) -> None:
        """Wait until what is in hand is recorded; in a shutdown no longer than it has time for."""
        gate, in_hand = self._session.gate, set(self._pending)
        while in_hand and not gate.overdue:
            in_hand = wait_for(in_hand, timeout=LOOK_SECONDS).not_done
        self._pool.shutdown(wait=not in_hand)

    def _cancel(self) -> None:
        """Let nothing begin any more."""
        for future in list(self._pending):
            future.cancel()


def read_items(items: Iterable[T]) -> Iterator[T]:
    """
    Read a list or a generator of the author's.

    :param items: what was given to a map.
    """
    iterator, end = iter(items), object()
    while (item := author(next, iterator, end)) is not end:
        yield item  # type: ignore[misc]


def key_of(item: Any, item_key: Callable[[Any], str] | None) -> str | None:
    """
    Give an item's own key.

    :param item: the item.
    :param item_key: the author's function; ``None``: there is none.
    :raises FlowOptionError: if it gives no text that can be stored; nothing ran for the item.
    """
    if item_key is None:
        return None
    key = author(item_key, item)
    check_name("map(item_key=)", key)
    return key


def check_workers(method: str, max_workers: object, on_item_error: object) -> int:
    """
    Check the options that maps share.

    :param method: for messages.
    :return: the number of workers.
    :raises FlowOptionError: if one is wrong or not built yet.
    """
    if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:
        raise FlowOptionError(f"{method}(): max_workers must be a whole number from 1, got {max_workers!r}")
    if on_item_error != "fail":
        raise FlowOptionError(f"{method}(): on_item_error={on_item_error!r} is not built yet; leave it at 'fail'")
    return max_workers
