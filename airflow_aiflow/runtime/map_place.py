"""Where an item of a map stands: its number in the list, and its place among equal calls."""

from __future__ import annotations

from typing import Any, NamedTuple

from airflow_aiflow.runtime.replay import Slot


class Place(NamedTuple):
    """Be one item in its place."""

    number: int
    item: Any
    slot: Slot
    key: str | None
