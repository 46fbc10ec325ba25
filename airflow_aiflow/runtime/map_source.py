"""What a map runs over: its items, one after the other, and how each is printed and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.item_print import Print, key_adder
from airflow_aiflow.durable.policy import check_name
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.map_rules import HOPELESS
from airflow_aiflow.runtime.steps import Ran, StepCall

#: Seconds that a chunk waits for a slow list before it goes on with what it has.
CHUNK_SECONDS = 0.1

_END = object()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """
    Stand for an item that could not be read, where those after it can be.

    :param error: says which and why.
    :param key: its own, where it is known.
    """

    error: Exception
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ItemSource:
    """
    Say what is done with each item.

    :param kind: of the records: ``item`` or ``llm``.
    :param name: the map's name.
    :param printed: prints an item.
    :param run: the work; runs on a miss alone.
    :param as_type: the class that rebuilds a stored result.
    :param item_key: gives an item's own key; ``None``: it has none.
    :param timeout: seconds for one try.
    :param retries: tries after the first, inside this attempt.
    :param reuse: seconds; a record of another run of the DAG that is no older counts; ``None``: none does.
    :param listed: gives an item's number in the author's list, where not every one of it is an item.
    """

    kind: str
    name: str
    printed: Print
    run: Callable[[Any], Ran]
    as_type: Any = None
    item_key: Callable[[Any], str] | None = None
    timeout: float | None = None
    retries: int = 0
    reuse: float | None = None
    listed: Callable[[int], int] = int
    _add: Callable[[bytes, str], bytes] = field(default_factory=key_adder)

    def print(self, item: Any) -> tuple[bytes, str | None]:
        """
        Give an item's fingerprint and its own key.

        :param item: the item.
        :raises StepInputError: if it has no canonical form.
        :raises FlowOptionError: if its key is no text that can be stored.
        """
        if type(item) is Unreadable:
            raise item.error
        digest = self.printed.digest(item)
        if self.item_key is None:
            return digest, None
        key = author(self.item_key, item)
        check_name("map(item_key=)", key)
        return self._add(digest, key), key

    def call(self, item: Any, fingerprint: bytes, printed: Printed | None, key: str | None) -> StepCall:
        """
        Make the step of one item.

        :param fingerprint: what ``print`` gave.
        :param printed: tells what changed in it.
        :param key: its own.
        """
        return StepCall(
            kind=self.kind,
            name=self.name,
            fingerprint=fingerprint,
            printed=printed,
            run=lambda: self.run(item),
            as_type=self.as_type,
            timeout=self.timeout,
            retries=self.retries,
            unit_key=key,
            reuse=self.reuse,
            hopeless=HOPELESS,
        )


class Chunks:
    """
    Read a list or a generator of the author's in pieces, never further than is asked for.

    :param items: what was given to a map.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self._items: Iterator[Any] = iter(items)
        #: Whether to go on in it runs no code of the author's, which may be slow, or end in an error.
        self._at_hand = type(items) in (list, tuple, range)
        self.ended = False
        #: What the author's generator raised.
        self.error: Exception | None = None

    def next(self, most: int) -> list[Any]:
        """
        Read up to so many items, or as many as come in a moment.

        :param most: how many.
        """
        if self._at_hand:
            taken = list(islice(self._items, most))
            self.ended = len(taken) < most
            return taken
        chunk: list[Any] = []
        began = time.monotonic()
        items = self._items
        try:
            while len(chunk) < most:
                item = author(next, items, _END)
                if item is _END:
                    self.ended = True
                    break
                chunk.append(item)
                if len(chunk) & 15 == 0 and time.monotonic() - began > CHUNK_SECONDS:
                    break
        except Exception as error:  # the author's
            self.ended, self.error = True, error
        return chunk
