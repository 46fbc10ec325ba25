"""
The same function over many items, in threads, each item a unit of its own.

Keys and occurrence numbers are taken in list order before a worker starts, so the order in which workers finish never
decides what an item replays. Replays need no worker: what is recorded is looked up in chunks. Only as many items as
workers need are in hand, so a generator is read as it is needed, and results are committed in groups. Whatever ends a
map early, what is in hand is recorded first and what never began gives its place back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from airflow_aiflow.durable.identity import StepKeys
from airflow_aiflow.durable.items import Reusable
from airflow_aiflow.durable.record import Kept, SharedStep
from airflow_aiflow.exceptions import ItemsFailedError, LedgerError
from airflow_aiflow.runtime.collector import fewer_collections
from airflow_aiflow.runtime.current import current_unit
from airflow_aiflow.runtime.map_crew import Crew, Item
from airflow_aiflow.runtime.map_lookup import Lookup, Lookups
from airflow_aiflow.runtime.map_place import Place
from airflow_aiflow.runtime.map_report import MapReport
from airflow_aiflow.runtime.map_results import MapResults
from airflow_aiflow.runtime.map_rules import MapRules, is_item_error
from airflow_aiflow.runtime.map_source import Chunks, ItemSource, Unreadable
from airflow_aiflow.runtime.map_trouble import MapTrouble
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.reuse import copy_of, read
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.sharing import copied, look_shared, shares
from airflow_aiflow.runtime.step_seal import refuse_seal, sealed_us, seals
from airflow_aiflow.runtime.steps import read_back

#: Most items whose records are looked up in one query.
MOST_LOOKED_UP = 2_000

#: Stands for the fingerprint of an item that has none.
NO_PRINT = bytes(32)


class MapRun:
    """
    Run the items of one map, several at a time.

    :param session: the attempt at work.
    :param source: what is done with each item.
    :param rules: the author's options.
    :param results: take what the items give.
    :param report: tells how far the map is.
    :param crew: makes its workers.
    """

    def __init__(
        self,
        session: Session,
        source: ItemSource,
        rules: MapRules,
        results: MapResults,
        report: MapReport,
        crew: Callable[..., Crew] = Crew,
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
        self._trouble = MapTrouble(session, source.name, rules, source.listed)
        self._crew = crew(session, source, rules, wanted=results.wanted)
        #: What has a place and no outcome yet, by its number in the list.
        self._open: dict[int, Item] = {}
        self._count = 0
        self._ahead = 0
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
                with fewer_collections():
                    self._feed(Chunks(items))
                    self._collect(lambda: not self._open)
            except BaseException:
                self._halt()
                raise
        finally:
            self._leave()
        if self._fatal:
            raise self._fatal[min(self._fatal)]
        self._report.ended(self._count)
        if self._rules.too_many(self._report.failures, self._report.total or self._count):
            raise ItemsFailedError(self._report.complaint(self._rules, self._session.attempt.execution.run_id))

    def _feed(self, chunks: Chunks) -> None:
        waiting: tuple[list[Place], Lookup] | None = None
        while waiting is not None or not (self._stopped or chunks.ended):
            items = [] if self._stopped or chunks.ended else chunks.next(self._appetite())
            try:
                self._session.gate.check()
                places = self._places(items)
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
        return self._crew.appetite >= 0 and not self._results.full

    def _appetite(self) -> int:
        """Say how many items to read: as many as workers want, and more where most are recorded already."""
        return max(self._crew.appetite, self._ahead, 1)

    def _begin(self, places: Sequence[Place], lookup: Lookup) -> None:
        found = lookup()
        known = len(found.kept) + len(found.reusable)
        self._ahead = min(max(2 * len(places), 1), MOST_LOOKED_UP) if 2 * known > len(places) else 0
        live: list[Place] = []
        recorded: list[tuple[Place, Kept]] = []
        for place in places:
            kept = found.kept.get(place.slot.key)
            if kept is not None:
                recorded.append((place, kept))
                continue
            other = found.reusable.get(place.slot.key) if found.reusable else None
            if other is None or not self._reuse(place, other):
                live.append(place)
        replays = self._replay(recorded)
        self._session.journal.replayed_items(self._source.name, replays)
        self._report.done(len(replays))
        theirs = look_shared(self._session, [place.slot for place in live]) if self._shares and live else {}
        self._give([place for place in live if not self._from_sibling(place, theirs.get(place.slot.key))])

    def _places(self, items: Sequence[Any]) -> list[Place]:
        """Take the places of items in the list."""
        path, name, print_of, key_of = self._path, self._source.name, self._source.print, self._keys.of
        printed: list[tuple[int, Any, bytes, str | None]] = []
        for item in items:
            if self._stopped:
                break
            number = self._count
            self._count += 1
            try:
                printed.append((number, item, *print_of(item)))
            except Exception as error:
                slot = Slot(path, name, NO_PRINT, number, key_of(NO_PRINT, number))
                known = item.key if type(item) is Unreadable else None
                self._failed([(Place(number, None, slot, known), error)])
        occurrences = self._numbers.take_all([fingerprint for _, _, fingerprint, _ in printed])
        places = [
            Place(number, item, Slot(path, name, fingerprint, occurrence, key_of(fingerprint, occurrence)), key)
            for (number, item, fingerprint, key), occurrence in zip(printed, occurrences, strict=True)
        ]
        if self._slots is not None:
            self._slots.update((place.slot.key, place.slot) for place in places)
        return places

    def _replay(self, recorded: Sequence[tuple[Place, Kept]]) -> list[Kept]:
        """Take recorded results. A million times, so everything that is the same for all is looked up once."""
        session, name, as_type, replays = self._session, self._source.name, self._source.as_type, []
        seal_of, read, put, wanted = self._seals.of, session.payloads.read, self._results.put, self._results.wanted
        for place, kept in recorded:
            slot = place.slot
            try:
                hashed = kept.sha256 or hashlib.sha256(kept.inline or b"").digest()
                if seal_of(slot.key, slot.fingerprint, hashed, sealed_us(kept.ended_us)) != kept.seal:
                    refuse_seal(session, slot, name, kept)
                value = read(kept.inline, kept.sha256, name, as_type) if wanted else None
            except Exception as error:
                self._give_back(place)
                self._failed([(place, error)])
                continue
            put(place.number, value)
            replays.append(kept)
        return replays

    def _reuse(self, place: Place, found: Reusable) -> bool:
        """Take what another run recorded; it is this run's once it is committed."""
        read_back = read(self._session, found, self._source.as_type, wanted=self._results.wanted)
        if read_back is None:
            return False
        item = self._open[place.number] = Item(place, None, reused=found)
        self._crew.bring(item, copy_of(self._session, place.slot, found), read_back[0])
        return True

    def _from_sibling(self, place: Place, found: SharedStep | None) -> bool:
        if found is None:
            return False
        call = self._source.call(place.item, place.slot.fingerprint, None, place.key)
        try:
            value = read_back(self._session, call, copied(self._session, found), theirs=True)
        except Exception as error:
            self._give_back(place)
            self._failed([(place, error)])
            return True
        self._results.put(place.number, value)
        self._report.done(1)
        return True

    def _give(self, live: Sequence[Place]) -> None:
        """Hand items to workers, but for those that are known for failing or for taking their process with them."""
        trouble, ready = self._trouble, []
        if live:
            trouble.read(self._crew.most_in_hand)
        for place in live:
            verdict = trouble.verdict(place)
            if verdict is not None:
                self._give_back(place)
                self._failed([(place, verdict)], known=True)
            elif trouble.suspect(place):
                self._collect(lambda: not self._open)
                self._hand([place], noted=True)
                self._collect(lambda: not self._open)
            else:
                ready.append(place)
        self._hand(ready, noted=trouble.careful)

    def _hand(self, places: Sequence[Place], *, noted: bool) -> None:
        if self._stopped:
            for place in places:
                self._give_back(place)
            return
        if noted:
            self._trouble.begin(places)
        items = [Item(place, self._source.printed(place.item)) for place in places]
        self._open.update((item.place.number, item) for item in items)
        self._crew.hand(items, singly=noted)

    def _collect(self, enough: Callable[[], bool]) -> None:
        """Take what has ended; wait for more until it is enough, or for all that is at work once the map is to end."""
        while True:
            self._settle(self._crew.ended())
            if not self._open or (enough() and not self._stopped):
                return
            self._settle(self._crew.wait())

    def _settle(self, items: Sequence[Item]) -> None:
        done, failures = 0, []
        for item in items:
            place = item.place
            del self._open[place.number]
            if item.unbegun:
                self._give_back(place)
            elif item.error is not None:
                if not item.given_back:
                    self._give_back(place)
                    item.error.add_note(f"aiflow: in step '{self._source.name}', {self._session.where}")
                failures.append((place, item.error))
            else:
                done += 1
                self._note(item)
                self._results.put(place.number, item.value)
        self._report.done(done)
        self._failed(failures)

    def _note(self, item: Item) -> None:
        if item.record is None:
            return
        listed = item.led and self._report.lists()
        if item.reused is not None:
            self._session.journal.reused(item.reused, listed=listed)
        else:
            self._session.journal.step(item.record, item.printed, listed=listed)
        if item.place.slot.unit:
            self._session.replay.keep(item.record)

    def _failed(self, failures: Sequence[tuple[Place, BaseException]], *, known: bool = False) -> None:
        """Go on without items, or end with them; the ledger remembers which ones they were."""
        for place, error in failures:
            if not self._rules.tolerates(error):
                self._stop(place.number, error)
                continue
            self._report.failed(self._source.listed(place.number), place.key, error)
            self._results.fail(place.number, error)
        own = [] if known else [(place, error) for place, error in failures if is_item_error(error)]
        try:
            self._trouble.failed(own)
        except LedgerError as error:
            self._stop(own[0][0].number, error)
        if self._report.hopeless(self._rules):
            self._halt()

    def _stop(self, number: int, error: BaseException) -> None:
        """Let nothing begin any more."""
        self._fatal[number] = error
        self._halt()

    def _halt(self) -> None:
        self._stopped = True
        self._crew.stop()

    def _give_back(self, place: Place) -> None:
        if self._slots is not None:
            self._slots.pop(place.slot.key, None)
        self._session.replay.give_back(place.slot)

    def _leave(self) -> None:
        """Wait until what is in hand is recorded; in a shutdown no longer than it has time for."""
        self._crew.leave()
        self._lookups.close()
        self._settle(self._crew.ended())
