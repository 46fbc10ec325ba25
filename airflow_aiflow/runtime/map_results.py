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
        :param value: what the item gave.
        """

    def fail(self, number: int, error: BaseException) -> None:
        """
        Take a failure that the map goes on after.

        :param number: of its item in the list, from 0; each comes once.
        :param error: what became of it.
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

    def fail(self, number: int, error: BaseException) -> None:
        """Keep ``None``."""
        self.put(number, None)


class NoResults:
    """Keep nothing: what the items gave is recorded, or outside."""

    wanted = False
    full = False

    def put(self, number: int, value: Any) -> None:
        """Let go of a result."""

    def fail(self, number: int, error: BaseException) -> None:
        """Let go of a failure."""


class OrderedResults:
    """
    Hand results on in the order of the items, and keep only those that came too early.

    :param write: takes one result after the other.
    :param write_failed: takes the failures among them; ``None``: ``write`` takes ``None`` for each.
    """

    wanted = True

    def __init__(
        self, write: Callable[[Any], None], write_failed: Callable[[BaseException], None] | None = None
    ) -> None:
        self._write = write
        self._write_failed = write_failed or (lambda _error: write(None))
        self._next = 0
        self._early: dict[int, tuple[Callable[[Any], None], Any]] = {}

    def put(self, number: int, value: Any) -> None:
        """Hand a result on, and those that waited for it."""
        self._take(number, self._write, value)

    def fail(self, number: int, error: BaseException) -> None:
        """Hand a failure on, and what waited for it."""
        self._take(number, self._write_failed, error)

    def _take(self, number: int, write: Callable[[Any], None], value: Any) -> None:
        if number != self._next:
            self._early[number] = (write, value)
            return
        write(value)
        self._next += 1
        while self._early and self._next in self._early:
            waited, early = self._early.pop(self._next)
            waited(early)
            self._next += 1

    @property
    def full(self) -> bool:
        """Whether many results wait for an earlier one."""
        return len(self._early) >= MOST_WAITING
