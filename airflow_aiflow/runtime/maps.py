"""
The same function over many items, in threads, each item a unit of its own.

Keys and occurrence numbers are taken in list order before a worker starts, so the order in which workers finish never
decides what an item replays. Replays need no worker: what is recorded is looked up in chunks. Only as many items as
workers need are in hand, so a generator is read as it is needed, and results are committed in groups. Whatever ends a
map early, what is in hand is recorded first and what never began gives its place back.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.identity import StepKeys
from airflow_aiflow.durable.items import Reusable
from airflow_aiflow.durable.record import Kept, StepRecord
from airflow_aiflow.runtime.current import current_unit
from airflow_aiflow.runtime.group import GroupWriter, Uncommitted
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.map_lookup import Lookup, Lookups
from airflow_aiflow.runtime.map_place import Place
from airflow_aiflow.runtime.map_report import MapReport
from airflow_aiflow.runtime.map_results import MapResults
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.map_source import Chunks, ItemSource
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.reuse import copy_of, read
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.sharing import shared, shares
from airflow_aiflow.runtime.step_seal import refuse_seal, sealed_at, seals
from airflow_aiflow.runtime.steps import Ran, StepCall, make_record, read_back, run_live

#: Items per worker that are prepared ahead, so that a worker never waits for the list.
AHEAD = 2

#: Seconds of work that a worker takes at once: quick items are handed over by the dozen, slow ones one by one.
GRAIN_SECONDS = 0.01
#: Most items that are handed over at once.
MOST_GRAIN = 64

#: Most items whose records are looked up in one query.
MOST_LOOKED_UP = 2_000

#: Seconds between two looks whether a signal has come, or what is in hand has had its time in a shutdown.
LOOK_SECONDS = 0.2


@dataclass(slots=True)
class _Item:
    """Be an item that is at work."""

    place: Place
    printed: Printed | None
    error: BaseException | None = None
    value: Any = None
    #: What is recorded of it now; ``None``: nothing, its own flow calls are.
    record: StepRecord | None = None
    #: Where its result comes from; ``None``: it ran.
    reused: Reusable | None = None
    #: Whether no worker began with it.
    unbegun: bool = False
    #: Whether its place was given back.
    given_back: bool = False


#: Given by a worker for a result that the writer has.
_COMMITTING = object()


class MapRun:
    """
    Run the items of one map, several at a time.

    :param session: the attempt at work.
    :param source: what is done with each item.
    :param rules: the author's options.
    :param results: take what the items give.
    :param report: tells how far the map is.
    """

    def __init__(
        self, session: Session, source: ItemSource, rules: MapRules, results: MapResults, report: MapReport
    ) -> None:
        unit = current_unit()
        self._session, self._source, self._rules = session, source, rules
        self._results, self._report = results, report
        self._path = unit.path
        self._slots = unit.slots if unit.path else None
        self._keys = StepKeys(unit.path, source.name)
        self._numbers = session.replay.numbers(unit.path, source.name)
        self._seals = seals(session)
        self._lookups = Lookups(session, source.reuse)
        self._shares = shares(session)
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
        self._ended: queue.SimpleQueue[Sequence[_Item]] = queue.SimpleQueue()
        #: What has a place and no outcome yet, by its number in the list.
        self._open: dict[int, _Item] = {}
        self._count = 0
        self._ahead = 0
        self._grain = 1
        self._stopped = False
        #: What ends the map, by its number in the list.
        self._fatal: dict[int, BaseException] = {}

    def over(self, items: Iterable[Any]) -> None:
        """
        Run the map.

        :param items: a list or a generator.
        :raises BaseException: the first failure in list order that is not tolerated; what was in hand is recorded.
        """
        try:
            try:
                self._feed(Chunks(items))
                self._collect(lambda: not self._open)
            except BaseException:
                self._stopped = True
                raise
        finally:
            self._leave()
        if self._fatal:
            raise self._fatal[min(self._fatal)]
        self._report.ended(self._count)

    def _feed(self, chunks: Chunks) -> None:
        waiting: tuple[list[Place], Lookup] | None = None
        while waiting is not None or not (self._stopped or chunks.ended):
            items = [] if self._stopped or chunks.ended else chunks.next(self._appetite())
            try:
                self._session.gate.check()
                places = [place for item in items if not self._stopped and (place := self._place(item)) is not None]
                found = self._lookups.ask(places)
                if waiting is not None:
                    self._begin(*waiting)
                # While the ledger is asked for these, those before them are replayed.
                waiting = (places, found) if places and self._ahead else None
                if waiting is None:
                    self._begin(places, found)
            except Exception as error:
                # A flow that has ended, a ledger that can't be asked: no item's own error.
                waiting = None
                self._stop(self._count, error)
            if chunks.error is not None:
                self._stop(self._count, chunks.error)
            self._collect(self._hungry)

    def _hungry(self) -> bool:
        """Say whether workers want more items."""
        return self._group.at_work <= self._rules.max_workers * AHEAD * self._grain and not self._results.full

    def _appetite(self) -> int:
        """Say how many items to read: as many as workers want, and more where most are recorded already."""
        wanted = self._rules.max_workers * AHEAD * self._grain - self._group.at_work
        return max(wanted, self._ahead, 1)

    def _begin(self, places: Sequence[Place], lookup: Lookup) -> None:
        found = lookup()
        known = len(found.kept) + len(found.reusable)
        self._ahead = min(max(2 * len(places), 1), MOST_LOOKED_UP) if 2 * known > len(places) else 0
        live: list[Place] = []
        replays: list[Kept] = []
        for place in places:
            kept = found.kept.get(place.slot.key)
            if kept is None:
                other = found.reusable.get(place.slot.key)
                if other is None or not self._reuse(place, other):
                    live.append(place)
            elif self._replay(place, kept):
                replays.append(kept)
        self._session.journal.replayed_items(self._source.name, replays)
        self._report.done(len(replays))
        self._give([place for place in live if not self._from_sibling(place)])

    def _place(self, item: Any) -> Place | None:
        """Take an item's place in the list."""
        number, source = self._count, self._source
        self._count += 1
        try:
            fingerprint, key = source.print(item)
        except Exception as error:
            self._failed(number, None, error)
            return None
        occurrence = self._numbers.take(fingerprint)
        slot = Slot(self._path, source.name, fingerprint, occurrence, self._keys.of(fingerprint, occurrence))
        if self._slots is not None:
            self._slots[slot.key] = slot
        return Place(number, item, slot, key)

    def _replay(self, place: Place, kept: Kept) -> bool:
        slot, name = place.slot, self._source.name
        try:
            hashed = kept.sha256 or hashlib.sha256(kept.inline or b"").digest()
            if self._seals.of(slot.key, slot.fingerprint, hashed, sealed_at(kept.ended_at)) != kept.seal:
                refuse_seal(self._session, slot, name, kept)
            value = None
            if self._results.wanted:
                value = self._session.payloads.read(kept.inline, kept.sha256, name, self._source.as_type)
        except Exception as error:
            self._give_back(place)
            self._failed(place.number, place.key, error)
            return False
        self._results.put(place.number, value)
        return True

    def _reuse(self, place: Place, found: Reusable) -> bool:
        """Take what another run recorded; it is this run's once it is committed."""
        read_back = read(self._session, found, self._source.as_type, wanted=self._results.wanted)
        if read_back is None:
            return False
        item = _Item(place, None, reused=found)
        self._open[place.number] = item
        self._group.begun(1)
        ours = copy_of(self._session, place.slot, found)
        failpoint("before_record", self._source.name)
        self._group.add(Uncommitted(item, ours, read_back[0], reused=found))
        return True

    def _from_sibling(self, place: Place) -> bool:
        if not self._shares or (found := shared(self._session, place.slot)) is None:
            return False
        call = self._source.call(place.item, place.slot.fingerprint, None, place.key)
        try:
            value = read_back(self._session, call, found, theirs=True)
        except Exception as error:
            self._give_back(place)
            self._failed(place.number, place.key, error)
            return True
        self._results.put(place.number, value)
        self._report.done(1)
        return True

    def _give(self, live: Sequence[Place]) -> None:
        if self._stopped:
            for place in live:
                self._give_back(place)
            return
        items = [_Item(place, self._source.printed(place.item)) for place in live]
        self._open.update((item.place.number, item) for item in items)
        self._group.begun(len(items))
        grain = self._grain  # a worker may change it meanwhile
        for at in range(0, len(items), grain):
            future = self._pool.submit(self._work, items[at : at + grain])
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    # --- in a worker's thread -----------------------------------------------------------------------------------------

    def _work(self, items: Sequence[_Item]) -> None:
        began, ran = time.perf_counter(), 0
        for item in items:
            if self._stopped:
                item.unbegun = True
                self._left(item)
            else:
                ran += 1
                self._context.copy().run(self._run_one, item)
        if ran:
            each = (time.perf_counter() - began) / ran
            self._grain = max(1, min(MOST_GRAIN, int(GRAIN_SECONDS / each), 2 * self._grain))
        self._ended.put(())

    def _run_one(self, item: _Item) -> None:
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

    def _left(self, item: _Item) -> None:
        self._group.left()
        self._ended.put((item,))

    def _keep(self, item: _Item, session: Session, call: StepCall, slot: Slot, ran: Ran, duration_ms: float) -> Any:
        record = make_record(session, call, slot, ran, duration_ms)
        if record is None:
            return ran.value
        result = Uncommitted(item, record)
        if self._results.wanted:
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
            item: _Item = result.item
            item.value, item.error, item.record = result.value, result.error, result.prior or result.record
        self._ended.put([result.item for result in results])

    # --- in the map's own thread again --------------------------------------------------------------------------------

    def _collect(self, enough: Callable[[], bool]) -> None:
        """Take what has ended; wait for more until it is enough, or for all that is at work once the map is to end."""
        while True:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._settle(self._ended.get_nowait())
            if not self._open or (enough() and not self._stopped):
                return
            # A signal that comes just before the thread blocks is not seen before it wakes.
            with contextlib.suppress(queue.Empty):
                self._settle(author(self._ended.get, True, LOOK_SECONDS))

    def _settle(self, items: Sequence[_Item]) -> None:
        session, done = self._session, 0
        for item in items:
            number, _, slot, key = item.place
            del self._open[number]
            if item.unbegun:
                self._give_back(item.place)
            elif item.error is not None:
                if not item.given_back:
                    self._give_back(item.place)
                    item.error.add_note(f"aiflow: in step '{self._source.name}', {session.where}")
                self._failed(number, key, item.error)
            else:
                done += 1
                if item.record is not None:
                    listed = self._report.lists()
                    if item.reused is not None:
                        session.journal.reused(item.reused, listed=listed)
                    else:
                        session.journal.step(item.record, item.printed, listed=listed)
                    if slot.unit:
                        session.replay.keep(item.record)
                self._results.put(number, item.value)
        self._report.done(done)

    def _failed(self, number: int, key: str | None, error: BaseException) -> None:
        if not self._rules.tolerates(error):
            self._stop(number, error)
            return
        self._report.failed(number, key, error)
        self._results.put(number, None)

    def _stop(self, number: int, error: BaseException) -> None:
        """Let nothing begin any more."""
        self._fatal[number] = error
        self._stopped = True

    def _give_back(self, place: Place) -> None:
        if self._slots is not None:
            self._slots.pop(place.slot.key, None)
        self._session.replay.give_back(place.slot)

    def _leave(self) -> None:
        """Wait until what is in hand is recorded; in a shutdown no longer than it has time for."""
        gate, in_hand = self._session.gate, set(self._futures)
        while in_hand and not gate.overdue:
            in_hand = wait_for(in_hand, timeout=LOOK_SECONDS).not_done
        self._pool.shutdown(wait=not in_hand, cancel_futures=True)
        self._lookups.close()
        self._group.close(wait=not in_hand)
        with contextlib.suppress(queue.Empty):
            while True:
                self._settle(self._ended.get_nowait())
