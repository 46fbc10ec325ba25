"""
The workers of a map, and the writer that commits what they bring.

Items come back ended: with a committed result, with an error, or unbegun. Nobody but the map's own thread reads them.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.items import Reusable
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.runtime.group import GroupWriter, Uncommitted
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.map_place import Place
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_source import ItemSource
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, make_record, run_live

#: Items per worker that are prepared ahead, so that a worker never waits for the list.
AHEAD = 2

#: Seconds of work that a worker takes at once: quick items are handed over by the dozen, slow ones one by one.
GRAIN_SECONDS = 0.01
#: Most items that are handed over at once.
MOST_GRAIN = 64

#: Seconds for an item below which it waits for nothing, not even another process of its machine: more workers would
#: only take the interpreter's lock from each other.
QUICK_SECONDS = 40e-6

#: Seconds between two looks whether a signal has come, or what is in hand has had its time in a shutdown.
LOOK_SECONDS = 0.2

#: Given by a worker for a result that the writer has.
_COMMITTING = object()


@dataclass(slots=True)
class Item:
    """Be an item that is at work."""

    place: Place
    printed: Printed | None
    error: BaseException | None = None
    value: Any = None
    #: What is recorded of it now; ``None``: nothing, its own flow calls are.
    record: StepRecord | None = None
    #: Where its result comes from; ``None``: it ran.
    reused: Reusable | None = None
    #: How long its function took; ``None``: it gave nothing to record.
    seconds: float | None = None
    #: Whether its line tells of work: in a batch, that of the first item does for all.
    led: bool = True
    #: Whether no worker began with it.
    unbegun: bool = False
    #: Whether its place was given back.
    given_back: bool = False


class Crew:
    """
    Work through items.

    :param session: the attempt at work.
    :param source: what is done with each item.
    :param rules: the author's options.
    :param wanted: whether results are read back.
    """

    def __init__(self, session: Session, source: ItemSource, rules: MapRules, *, wanted: bool) -> None:
        self._session, self._source, self._rules, self._wanted = session, source, rules, wanted
        self._context = contextvars.copy_context()
        self._pool = ThreadPoolExecutor(rules.max_workers, thread_name_prefix="aiflow-map")
        self._futures: set[Future[None]] = set()
        self._group = GroupWriter(
            session,
            source.name,
            most=rules.batch_commit,
            interval=rules.flush_interval,
            told=self._committed,
            load=self._load,
        )
        #: A queue whose waiting can be interrupted by a signal, which a future's own waiting can't safely be.
        self._ended: queue.SimpleQueue[Sequence[Item]] = queue.SimpleQueue()
        self._grain, self._quick = 1, False
        self._stopped = False

    @property
    def appetite(self) -> int:
        """How many more items keep the workers busy; below 0 where they have enough."""
        # Where each item waits for its own commit, only many share one.
        alone = self._quick and self._rules.flush_interval > 0
        workers = 1 if alone else self._rules.max_workers
        return workers * AHEAD * self._grain - self._group.at_work

    @property
    def most_in_hand(self) -> int:
        """How many items may be in hand when a process is lost."""
        return self._rules.max_workers * AHEAD * MOST_GRAIN + self._rules.batch_commit

    def hand(self, items: Sequence[Item], *, singly: bool) -> None:
        """
        Give items to workers.

        :param items: in order.
        :param singly: whether a worker takes one at a time, however quick they are.
        """
        self._group.begun(len(items))
        grain = 1 if singly else self._grain  # which a worker may change meanwhile
        for at in range(0, len(items), grain):
            future = self._pool.submit(self._work, items[at : at + grain])
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    def bring(self, item: Item, record: StepRecord, value: Any) -> None:
        """
        Have a result committed that needs no work.

        :param item: whose it is.
        :param record: what is to be committed.
        :param value: the result.
        """
        self._group.begun(1)
        failpoint("before_record", self._source.name)
        self._group.add(Uncommitted(item, record, value, reused=item.reused), waits=False)

    def ended(self) -> list[Item]:
        """Give the items that have ended, without waiting."""
        items: list[Item] = []
        with contextlib.suppress(queue.Empty):
            while True:
                items += self._ended.get_nowait()
        return items

    def wait(self) -> Sequence[Item]:
        """Wait a moment for items to end, or for workers to want more; a signal may raise."""
        # One that comes just before the thread blocks is not seen before it wakes.
        with contextlib.suppress(queue.Empty):
            return author(self._ended.get, True, LOOK_SECONDS)
        return ()

    def stop(self) -> None:
        """Let nothing begin any more."""
        self._stopped = True

    def leave(self) -> None:
        """Wait until what is in hand is recorded; in a shutdown no longer than it has time for."""
        gate, in_hand = self._session.gate, set(self._futures)
        while in_hand and not gate.overdue:
            in_hand = wait_for(in_hand, timeout=LOOK_SECONDS).not_done
        self._pool.shutdown(wait=not in_hand, cancel_futures=True)
        self._group.close(wait=not in_hand)

    # --- in a worker's thread, or the writer's ------------------------------------------------------------------------

    def _work(self, items: Sequence[Item]) -> None:
        ran, seconds = 0, 0.0
        for item in items:
            if self._stopped:
                item.unbegun = True
                self._left(item)
            else:
                ran, began = ran + 1, time.perf_counter()
                self._context.copy().run(self._run_one, item)
                # Of an item that is committed by others: the time of its function, and not of its waiting for them.
                seconds += time.perf_counter() - began if item.seconds is None else item.seconds
        if ran:
            grain = int(GRAIN_SECONDS * ran / max(seconds, 1e-9))
            self._grain = max(1, min(MOST_GRAIN, grain, 2 * self._grain))
            self._quick = self._grain == MOST_GRAIN and seconds < QUICK_SECONDS * ran
        self._ended.put(())

    def _run_one(self, item: Item) -> None:
        _, work, slot, key = item.place
        call = self._source.call(work, slot.fingerprint, item.printed, key)
        try:
            given = run_live(self._session, call, slot, partial(self._keep, item))
        except BaseException as error:
            item.error, item.given_back = error, True
        else:
            if given is _COMMITTING:
                return  # the writer's, and perhaps told of already
            item.value = given
        self._left(item)

    def _left(self, item: Item) -> None:
        self._group.left()
        self._ended.put((item,))

    def _keep(self, item: Item, session: Session, call: StepCall, slot: Slot, ran: Ran, duration_ms: float) -> Any:
        item.seconds = duration_ms / 1000
        record = make_record(session, call, slot, ran, duration_ms)
        if record is None:
            return ran.value
        result = Uncommitted(item, record)
        if self._wanted:
            try:
                result.value = self._load(record)
            except Exception as error:  # it is recorded all the same: it was paid for
                result.error = error
        failpoint("before_record", call.name)
        self._group.add(result)
        return _COMMITTING

    def _load(self, record: StepRecord) -> Any:
        return self._session.payloads.read(
            record.result.inline, record.result.sha256, record.name, self._source.as_type
        )

    def _committed(self, results: Sequence[Uncommitted]) -> None:
        for result in results:
            item: Item = result.item
            item.value, item.error, item.record = result.value, result.error, result.prior or result.record
        self._ended.put([result.item for result in results])
