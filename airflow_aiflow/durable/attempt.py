"""
One try of an execution, as the task process knows it, and the process that makes it.

An attempt is (ti id, try number): Airflow has a race in which the same ti id comes back with a higher try number.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID

from airflow_aiflow.durable.identity import ExecutionId

OnClear = Literal["auto", "resume", "fresh"]


@dataclass(frozen=True, slots=True)
class Owner:
    """
    Say which process makes an attempt, so exactly that its death can be verified.

    ``boot_id`` and ``pid_namespace`` (an inode number) say whether (pid, start) means anything here; ``start`` is the
    process's start time in clock ticks since boot, so that a pid that was given out again is told apart.
    """

    hostname: str
    boot_id: str
    pid_namespace: int
    pid: int
    start: int
    ti_id: str

    def to_plain(self) -> dict[str, Any]:
        """Give the form that the ledger stores as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """
        Read what ``to_plain`` wrote.

        :param plain: the JSON object.
        """
        return cls(**{name: plain[name] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Counters:
    """Hold what tells one attempt from another: the columns on which the signs of retry and clear are read."""

    ti_id: UUID
    try_number: int
    max_tries: int
    retries: int
    clear_number: int
    run_after: datetime | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """Describe one attempt as a plain value, built by the decorator from what the task process can see."""

    execution: ExecutionId
    counters: Counters
    owner: Owner
    mapped: bool = False
    setup_or_teardown: bool = False
    on_clear: OnClear = "auto"
    #: Over (task id, map index, duration) of every finished upstream task instance; ``None``: none, or unknown.
    upstream_digest: bytes | None = None
