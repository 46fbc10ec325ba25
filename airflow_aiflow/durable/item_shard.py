"""
Share items among mapped tasks by what they are, never by where they stand.

A list that grew or shifted gives each task the items that it had before, and hands none another's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from airflow_aiflow.exceptions import FlowOptionError


@dataclass(frozen=True, slots=True)
class ItemShard:
    """
    Be one part of all items.

    :param index: which part, from 0.
    :param of: how many parts there are.
    """

    index: int
    of: int

    def has(self, key: str | bytes) -> bool:
        """
        Say whether an item belongs to this part.

        :param key: its own, or its fingerprint.
        """
        raw = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(b"shard:" + raw).digest()[:8], "big") % self.of == self.index

    def __str__(self) -> str:
        return f"{self.index}-of-{self.of}"


def read_shard(value: Any) -> ItemShard | None:
    """
    Read ``shard=``.

    :param value: (index, of); ``None``: all items.
    :raises FlowOptionError: if it is something else.
    """
    if value is None or isinstance(value, ItemShard):
        return value
    if isinstance(value, list | tuple) and len(value) == 2:
        index, of = value
        whole = all(isinstance(number, int) and not isinstance(number, bool) for number in value)
        if whole and 0 <= index < of:
            return ItemShard(index, of)
    raise FlowOptionError(f"shard must be (index, of) with an index from 0 up to, but not, of; got {value!r}")
