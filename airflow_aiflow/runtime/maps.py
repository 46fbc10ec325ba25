"""
The same function over many items, in threads, each item a unit of its own.

Keys and occurrence numbers are taken in list order before a worker starts, so the order in which workers finish never
decides what an item replays. Replays need no worker. Only as many items as workers are in hand, so a generator is read
as it is needed.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.runtime.session import Session

#: Items per worker that are prepared ahead, so that a worker never waits for the list.
AHEAD = 2

Prepared = tuple[bool, Any]


class MapRun:
    """
    Run prepared items in order, several at a time.

    :param session: the attempt at work.
    :param max_workers: threads.
    :param run: does one item that is not recorded; called in a worker thread.
    """

    def __init__(self, session: Session, max_workers: int, run: Callable[[Any], Any]) -> None:
        self._session = session
        self._max_workers = max_workers
        self._run = run
        self._results: dict[int, Any] = {}
        self._pending: dict[Future[Any], int] = {}
        self._failed: dict[int, BaseException] = {}

    def over(self, prepared: Iterable[Prepared]) -> list[Any]:
        """
        Give the results in the order of the items.

        :param prepared: (is replayed, its value or what ``run`` takes), made lazily.
        :raises BaseException: the first failure in list order, after what is in hand was recorded.
        """
        count = 0
        with ThreadPoolExecutor(self._max_workers, thread_name_prefix="aiflow-map") as pool:
            for done, value in self._until_failure(prepared):
                if done:
                    self._results[count] = value
                else:
                    context = contextvars.copy_context()
                    self._pending[pool.submit(context.run, self._run, value)] = count
                    self._collect(most=self._max_workers * AHEAD)
                count += 1
            self._collect(most=0)
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._results[index] for index in range(count)]

    def _until_failure(self, prepared: Iterable[Prepared]) -> Iterator[Prepared]:
        items = iter(prepared)
        while not self._failed:
            try:
                item = next(items)
            except StopIteration:
                return
            except BaseException as error:
                # A replayed item that can't be read, or a generator of the author's that raised: what is in hand is
                # recorded first.
                self._failed[len(self._results) + len(self._pending)] = error
                return
            yield item

    def _collect(self, *, most: int) -> None:
        """Take finished items until at most ``most`` are in hand."""
        while self._pending and (len(self._pending) > most or self._failed):
            finished, _ = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in finished:
                index = self._pending.pop(future)
                error = None if future.cancelled() else future.exception()
                if future.cancelled():
                    continue
                if error is None:
                    self._results[index] = future.result()
                    continue
                self._failed[index] = error
                for waiting in self._pending:
                    waiting.cancel()


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
