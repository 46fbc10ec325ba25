"""
Items that failed or took their process with them: what the ledger remembers of them from try to try.

After a process was lost nobody knows over which item. So the next attempt notes items before it begins them, and an
item that was noted when its process was lost, and has no result, is a suspect: it runs alone from then on. Lost twice
so, it is dead: the map goes on without it, or ends with it, as the author wishes.

Not covered: a process that is lost over no item of a map (its machine, an operator's hand) counts against an item that
was at work alone at that moment; two of those in a row make it dead, and ``aiflow batch retry-failed`` alive again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_aiflow.durable.items import FailedItem, ItemState
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.exceptions import ItemLostError, ItemsFailedError
from airflow_aiflow.runtime.map_place import Place
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.session import Session

#: Processes that may be lost over one item.
MOST_KILLS = 2

#: Characters of an error that are kept.
MOST_TEXT = 2_000


class MapTrouble:
    """
    Remember items without a result.

    :param session: the attempt at work.
    :param name: the map's name.
    :param rules: the author's options.
    :param listed: gives an item's number in the author's list.
    """

    def __init__(self, session: Session, name: str, rules: MapRules, listed: Callable[[int], int] = int) -> None:
        self._session, self._name, self._rules, self._listed = session, name, rules, listed
        self._known: dict[bytes, FailedItem] = {}
        self._ending: str | None = None
        self._read = session.taken.lease.fence == 1
        #: Items that are still noted before they begin.
        self._careful = 0

    def read(self, careful: int) -> None:
        """
        Ask the ledger, once, where there was an attempt before.

        :param careful: how many items may have been in hand when a process was lost.
        """
        if self._read:
            return
        self._read = True
        self._ending, items = self._session.recorder.troubled()
        if self.lost:
            self._careful = careful
        self._known = {item.step_key: self._counted(item) for item in items if item.name == self._name}

    @property
    def lost(self) -> bool:
        """Whether the attempt before this one ended without a word."""
        return self._ending in ("lapsed", "superseded")

    @property
    def careful(self) -> bool:
        """Whether items are noted before they begin."""
        return self._careful > 0

    def _counted(self, item: FailedItem) -> FailedItem:
        if item.state != "at_work" or not self.lost or item.fence != self._session.taken.lease.fence - 1:
            return item
        return replace(item, kills=item.kills + 1)

    def suspect(self, place: Place) -> bool:
        """
        Say whether an item must run alone.

        :param place: of the item.
        """
        known = self._known.get(place.slot.key)
        return known is not None and known.state == "at_work" and known.kills > 0

    def verdict(self, place: Place) -> BaseException | None:
        """
        Say why an item is not to run at all; ``None``: it is.

        :param place: of the item.
        """
        known = self._known.get(place.slot.key)
        if known is None or known.state == "retry":
            return None
        if known.kills >= MOST_KILLS:
            which = f"item {self._listed(place.number)} of '{self._name}'"
            lost = ItemLostError(
                f"{which} was at work when {known.kills} processes were lost: it is not begun again. Look at "
                "the item, then: aiflow batch retry-failed RUN"
            )
            if known.state != "dead":
                self.failed([(place, lost)])
            return lost
        if known.state == "dead" and self._rules.tolerant and self._ending != "failed":
            return ItemsFailedError(
                f"it failed {known.failures} times before; aiflow batch retry-failed RUN runs it again"
            )
        return None

    def begin(self, places: Sequence[Place]) -> None:
        """
        Note items that are about to begin.

        :param places: of the items.
        """
        self._careful = max(0, self._careful - len(places))
        self._write([self._item(place, "at_work", None) for place in places])

    def failed(self, failures: Sequence[tuple[Place, BaseException]]) -> None:
        """
        Write down items that failed.

        :param failures: of the items.
        """
        state: ItemState = "dead" if self._rules.tolerant else "failed"
        lost = [(place, error, isinstance(error, ItemLostError)) for place, error in failures]
        self._write([self._item(place, "dead" if dead else state, error) for place, error, dead in lost])

    def _item(self, place: Place, state: ItemState, error: BaseException | None) -> FailedItem:
        known = self._known.get(place.slot.key)
        tries = self._rules.retries + 1 if error is not None and not isinstance(error, ItemLostError) else 0
        item = FailedItem(
            step_key=place.slot.key,
            name=self._name,
            number=self._listed(place.number),
            key=place.key,
            state=state,
            failures=(0 if known is None else known.failures) + tries,
            kills=0 if known is None else known.kills,
            error=None if error is None else self._stored(error),
            fence=self._session.taken.lease.fence,
        )
        self._known[place.slot.key] = item
        return item

    def _stored(self, error: BaseException) -> bytes:
        session = self._session
        text = session.services.host.redact(str(error))[:MOST_TEXT].encode("utf-8", "backslashreplace").decode()
        return session.payloads.keep_inline(encode({"type": type(error).__name__, "message": text}).data)

    def _write(self, items: Sequence[FailedItem]) -> None:
        if items:
            self._session.recorder.fail_items(items)
