"""
The items of a batch between their source and the first call: read whole, on disk, with their prompts.

So a batch knows how many items it has, refuses what can't be asked before anything is paid, finds keys that come twice,
and does not hold a database's cursor open for the hours that model calls take. SQLite in a temporary folder holds them;
in memory is one item at a time.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from airflow_aiflow.exceptions import ItemInputError
from airflow_aiflow.runtime.map_source import Unreadable

_TABLES = """
create table item (number integer primary key, key text, prompt text, error text);
create table seen (hash integer primary key, number integer not null);
"""


class Ask(NamedTuple):
    """Be one item that is asked about."""

    key: str | None
    prompt: str


class ItemSpool:
    """
    Keep items in the order in which they came.

    :param folder: where the temporary file lies; ``None``: where temporary files lie.
    """

    def __init__(self, folder: str | None = None) -> None:
        with tempfile.TemporaryDirectory(prefix="aiflow-items-", dir=folder) as place:
            self._base = sqlite3.connect(Path(place, "items.sqlite"), isolation_level=None)
            # It is nobody's but this attempt's, and has no name from here on: a process that is killed leaves nothing
            # behind, and the next attempt reads its items anew.
            self._base.executescript(f"pragma journal_mode=off; pragma synchronous=off; {_TABLES} begin;")
        self.total = 0
        #: Items that can't be asked about.
        self.failed = 0
        #: Items that came a second time, the very same, and are done once.
        self.repeated = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()

    def add(self, key: str | None, prompt: str) -> ItemInputError | None:
        """
        Keep an item.

        :param key: its own; ``None``: it has none, and may come again.
        :param prompt: what is asked.
        :return: why it is no item to ask about: its key came before with another prompt.
        """
        if key is not None and (before := self._before(key)) is not None:
            if before[1] == _kept(prompt):
                self.repeated += 1
                return None
            error = ItemInputError(
                f"item {key} came before, as item {before[0]} of the list, with another prompt: an item_key must name "
                "one item alone"
            )
            self.fail(key, error)
            return error
        if key is not None:
            self._base.execute("insert or ignore into seen values (?, ?)", (_hash(key), self.total))
        self._insert(key, prompt, None)
        return None

    def fail(self, key: str | None, error: Exception) -> None:
        """
        Keep the place of an item that can't be asked about.

        :param key: its own, where it is known.
        :param error: why.
        """
        self._insert(key, None, str(error).encode("utf-8", "backslashreplace").decode())
        self.failed += 1

    def _before(self, key: str) -> tuple[int, str | bytes | None] | None:
        found = self._base.execute(
            "select i.number, i.key, i.prompt from seen s join item i on i.number = s.number where s.hash = ?",
            (_hash(key),),
        ).fetchone()
        return None if found is None or found[1] != key else (found[0], found[2])

    def _insert(self, key: str | None, prompt: str | None, error: str | None) -> None:
        # Text of SQLite is UTF-8: a lone surrogate is kept as the bytes that it came in, and refused where it is sent.
        values: list[Any] = [self.total, key, _kept(prompt), error]
        self._base.execute("insert into item values (?, ?, ?, ?)", values)
        self.total += 1

    def asks(self) -> Iterator[Ask | Unreadable]:
        """Give all items in order."""
        for key, prompt, error in self._base.execute("select key, prompt, error from item order by number"):
            if error is not None:
                yield Unreadable(ItemInputError(error), key)
            else:
                yield Ask(key, _given(prompt))

    def keys(self) -> Iterator[str | None]:
        """Give the keys of all items in order."""
        for (key,) in self._base.execute("select key from item order by number"):
            yield key


def _hash(key: str) -> int:
    hashed = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(hashed[:8], "big", signed=True)


def _kept(prompt: str | None) -> str | bytes | None:
    if prompt is None:
        return None
    try:
        prompt.encode()
    except UnicodeEncodeError:
        return prompt.encode("utf-8", "surrogatepass")
    return prompt


def _given(prompt: str | bytes) -> str:
    return prompt if isinstance(prompt, str) else prompt.decode("utf-8", "surrogatepass")
