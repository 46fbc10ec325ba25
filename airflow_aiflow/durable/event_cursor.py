"""
How far a reader of events is: for each execution the position in its last two attempts.

A plain sequence number would have holes that fill up later, since numbers are given out before they are committed. An
attempt's own has none: they are given under one lock that is held through the commit. The attempt before the last is
kept because one event of it may come to the ledger while the next one takes over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

#: Characters of a cursor that are read: one of a thousand executions has some 20,000.
LONGEST = 65_536

_PLACE = re.compile(r"[0-9a-z]{1,13}\.[0-9a-z]{1,13}\.[0-9a-z]{1,13}")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

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
    """Hold positions: (execution, fence) -> the last sequence number that was read."""

    places: dict[tuple[int, int], int] = field(default_factory=dict)

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
        self.places[event.execution_pk, event.fence] = event.seq
        fences = sorted(fence for pk, fence in self.places if pk == event.execution_pk)
        for fence in fences[:-KEPT]:
            del self.places[event.execution_pk, fence]

    def copy(self) -> Cursor:
        """Give one that goes its own way."""
        return Cursor(dict(self.places))

    def __str__(self) -> str:
        return "-".join(
            f"{_base36(pk)}.{_base36(fence)}.{_base36(seq)}" for (pk, fence), seq in sorted(self.places.items())
        )

    @classmethod
    def read(cls, text: str) -> Cursor:
        """
        Read what ``str`` gave.

        :param text: of a client; empty: from the beginning.
        :raises ValueError: if it is none.
        """
        if len(text) > LONGEST:
            raise ValueError("the cursor is too long")
        places: dict[tuple[int, int], int] = {}
        for part in text.split("-") if text else []:
            if not _PLACE.fullmatch(part):
                raise ValueError("the cursor is none of ours: give an event's id as it came")
            pk, fence, seq = (int(each, 36) for each in part.split("."))
            if max(pk, fence, seq) >= 2**63:
                raise ValueError("the cursor is none of ours: give an event's id as it came")
            places[pk, fence] = seq
        return cls(places)


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
