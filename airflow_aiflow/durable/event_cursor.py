"""
How far a reader of events is: for each execution the position in its last two attempts.

A plain sequence number would have holes that fill up later, since numbers are given out before they are committed. An
attempt's own has none: they are given under one lock that is held through the commit. The attempt before the last is
kept because one event of it may come to the ledger while the next one takes over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

#: Characters of a cursor that are read: one of a client that was here before bases had some 20,000.
LONGEST = 65_536

_PLACE = re.compile(r"[0-9a-z]{1,13}\.[0-9a-z]{1,13}\.[0-9a-z]{1,13}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_BASE = re.compile(r"[0-9a-f]{32}")
NONE_OF_OURS = "the cursor is none of ours: give an event's id as it came"

#: Positions in a client's text, of some ten characters each: proxies take headers of 4,000 and more.
MOST_PLACES = 64

#: Attempts of one execution whose positions are kept.
KEPT = 2

#: A piece of a model's answer while it is written, and what stands in the place of all pieces once it is recorded.
DELTA, DONE = "llm.delta", "llm.done"

#: How the ids of runs begin that were handed in: see ``submission.run_id_of``.
HANDED_IN = "aiflow__"


@dataclass(frozen=True, slots=True)
class Event:
    """
    Hold an event as readers get it.

    :param attempt: the running number of the attempt that wrote it; a reader drops a dead attempt's tail by it.
    :param at: the database's time.
    :param data: plain data.
    """

    execution_pk: int
    fence: int
    seq: int
    task_id: str
    map_index: int
    attempt: int
    at: datetime
    kind: str
    data: Any


@dataclass(slots=True)
class Cursor:
    """
    Hold positions: (execution, fence) -> the last sequence number that was read.

    Of many executions a client's text holds the last ones alone, behind the name of a base that the server keeps.

    :param base: its name; empty: there is none.
    :param since: what has changed since.
    :param whole: whether ``places`` holds what the base holds.
    """

    places: dict[tuple[int, int], int] = field(default_factory=dict)
    base: str = ""
    since: dict[tuple[int, int], int] = field(default_factory=dict)
    whole: bool = True
    _fences: dict[int, list[int]] = field(default_factory=dict, repr=False, compare=False)
    _indexed: tuple[dict[tuple[int, int], int] | None, int] = field(default=(None, 0), repr=False, compare=False)

    def behind(self, event: Event) -> bool:
        """
        Say whether an event is news.

        :param event: any.
        """
        return event.seq > self.places.get((event.execution_pk, event.fence), -1)

    def pass_(self, event: Event) -> None:
        """
        Go on behind an event.

        :param event: the next one of its attempt.
        """
        self._pass((event.execution_pk, event.fence), event.seq)

    def _pass(self, place: tuple[int, int], seq: int) -> None:
        new = place not in self.places
        if new:
            self._index()
        self.places[place] = seq
        if self.base:
            self.since[place] = seq
        if new:
            fences = self._fences.setdefault(place[0], [])
            fences.append(place[1])
            fences.sort()
            for fence in fences[:-KEPT]:
                del self.places[place[0], fence]
                self.since.pop((place[0], fence), None)
            del fences[:-KEPT]
            self._indexed = self.places, len(self.places)

    def _index(self) -> None:
        """Know the attempts of each execution; looking through all of them at each new one would take for ever."""
        indexed, count = self._indexed
        if indexed is self.places and count == len(self.places):
            return
        self._fences, self._indexed = {}, (self.places, len(self.places))
        for pk, fence in self.places:
            self._fences.setdefault(pk, []).append(fence)

    def only(self, executions: Collection[int]) -> None:
        """
        Forget what is not of some executions: a client writes into its cursor what it likes, and a base is kept.

        :param executions: their rows.
        """
        fences: dict[int, list[int]] = {}
        for pk, fence in self.places:
            fences.setdefault(pk, []).append(fence)
        for pk, found in fences.items():
            for fence in sorted(found)[:-KEPT] if pk in executions else found:
                del self.places[pk, fence]
                self.since.pop((pk, fence), None)

    @property
    def long(self) -> bool:
        """Whether its text grows beyond what belongs into a header: then it needs a new base."""
        return len(self.since if self.base else self.places) > MOST_PLACES

    def rest_on(self, base: str) -> None:
        """
        Go on with a short text.

        :param base: the name under which all of its positions are kept.
        """
        self.base, self.since = base, {}

    def open(self, kept: str) -> None:
        """
        Take in what the base of a client's text holds.

        :param kept: as ``all_places`` gave it.
        """
        # Of however many executions: it was never in a client's hands, whose texts alone are limited.
        since, self.places, self.since, self.whole = self.places, _places(kept), {}, True
        for place, seq in sorted(since.items()):
            self._pass(place, seq)

    def copy(self) -> Cursor:
        """Give one that goes its own way."""
        return Cursor(dict(self.places), self.base, dict(self.since), self.whole)

    @property
    def all_places(self) -> str:
        """All of its positions as text."""
        return _text(self.places)

    def __str__(self) -> str:
        return f"{self.base}~{_text(self.since)}" if self.base else self.all_places

    @classmethod
    def read(cls, text: str) -> Cursor:
        """
        Read what ``str`` gave.

        :param text: of a client; empty: from the beginning.
        :raises ValueError: if it is none.
        """
        if len(text) > LONGEST:
            raise ValueError("the cursor is too long")
        base, based, rest = text.partition("~")
        if based and not _BASE.fullmatch(base):
            raise ValueError(NONE_OF_OURS)
        return cls(_places(rest if based else text), base if based else "", whole=not based)


class CursorShelf(Protocol):
    """Keep what long cursors rest on."""

    def keep(self, places: str) -> str:
        """Keep positions, and give the name of what is kept; of equal ones it is the same."""

    def get(self, base: str) -> str | None:
        """Give what is kept under a name; ``None``: nothing, or no longer."""


def whole(cursor: Cursor, shelf: CursorShelf) -> Cursor:
    """
    Take in what a client's cursor rests on.

    :param cursor: as it was read.
    :param shelf: knows bases.
    :raises ValueError: if its base is kept no longer, or never was.
    """
    if not cursor.whole:
        kept = shelf.get(cursor.base)
        if kept is None:
            raise ValueError("the cursor is too old: begin without one")
        cursor.open(kept)
    return cursor


def shortened(cursor: Cursor, shelf: CursorShelf) -> None:
    """
    Let a cursor rest on all of its positions up to now.

    :param cursor: a whole one.
    :param shelf: keeps them.
    """
    cursor.rest_on(shelf.keep(cursor.all_places))


def _places(text: str) -> dict[tuple[int, int], int]:
    places: dict[tuple[int, int], int] = {}
    for part in text.split("-") if text else []:
        if not _PLACE.fullmatch(part):
            raise ValueError(NONE_OF_OURS)
        pk, fence, seq = (int(each, 36) for each in part.split("."))
        if max(pk, fence, seq) >= 2**63:
            raise ValueError(NONE_OF_OURS)
        places[pk, fence] = seq
    return places


def _text(places: dict[tuple[int, int], int]) -> str:
    return "-".join(f"{_base36(pk)}.{_base36(fence)}.{_base36(seq)}" for (pk, fence), seq in sorted(places.items()))


class Events(Protocol):
    """Read the events of runs."""

    def after_by_run(
        self, runs: Iterable[tuple[str, str]], cursor: Cursor, *, limit: int
    ) -> list[tuple[tuple[str, str], Event]]:
        """
        Read what is behind a cursor, each event with its run.

        :param runs: (DAG id, run id).
        :param cursor: of one reader of all of them.
        :param limit: at most so many.
        :return: of each attempt in order and without a hole, by time over all.
        """

    def ends(self, runs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Cursor]:
        """
        Say where the events of each run end now.

        :param runs: (DAG id, run id).
        """

    def words(self, runs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """
        Give for each run that was handed in what differs once it stands otherwise; it means nothing else.

        :param runs: (DAG id, run id).
        """


def is_handed_in(run_id: str) -> bool:
    """
    Say whether somebody may follow a run.

    :param run_id: any.
    """
    return run_id.startswith(HANDED_IN)


def run_mark(dag_id: str, run_id: str) -> str:
    """
    Give the word by which servers tell each other of a run's news, which says nothing to others.

    :param dag_id: its DAG.
    :param run_id: its id.
    """
    return hashlib.sha256(f"{dag_id}\n{run_id}".encode()).hexdigest()


def _base36(number: int) -> str:
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if not number:
            return text
