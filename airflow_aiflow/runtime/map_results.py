"""Where the results of a map go: into a list, in order into something that takes them, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

#: Results that wait for an earlier one before they can be handed on in order: with a slow item at their head, the map
#: reads no further.
MOST_WAITING = 4_096


class MapResults(Protocol):
    """Take what items give, in any order, from the map's own thread."""

    #: Whether values are wanted at all; else they are not even read back.
    wanted: bool

    def put(self, number: int, value: Any) -> None:
        """
        Take a result.

        :param number: of its item in the list, from 0; each comes once.
        :param value: what the item gave; ``None`` of a failed one.
        """

    @property
    def full(self) -> bool:
        """Whether no further item should begin for now."""


class ListedResults:
    """Keep all results in the order of the items."""

    wanted = True
    full = False

    def __init__(self) -> None:
        self.values: list[Any] = []

    def put(self, number: int, value: Any) -> None:
        """Keep a result."""
        missing = number + 1 - len(self.values)
        if missing == 1:
            self.values.append(value)
            return
        if missing > 0:
            self.values.extend([None] * missing)
        self.values[number] = value


class NoResults:
    """Keep nothing: what the items gave is recorded, or outside."""

    wanted = False
    full = False

    def put(self, number: int, value: Any) -> None:
        """Let go of a result."""


class OrderedResults:
    """
    Hand results on in the order of the items, and keep only those that came too early.

    :param write: takes one result after the other.
    """

    wanted = True

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write
        self._next = 0
        self._early: dict[int, Any] = {}

    def put(self, number: int, value: Any) -> None:
        """Hand a result on, and those that waited for it."""
        if number != self._next:
            self._early[number] = value
            return
        self._write(value)
        self._next += 1
        while self._early and self._next in self._early:
            self._write(self._early.pop(self._next))
            self._next += 1

    @property
    def full(self) -> bool:
        """Whether many results wait for an earlier one."""
        return len(self._early) >= MOST_WAITING
