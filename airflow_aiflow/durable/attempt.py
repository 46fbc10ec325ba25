"""
One try of an execution, as the task process knows it, and the process that makes it.

An attempt is (ti id, try number): Airflow has a race in which the same ti id comes back with a higher try number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import UUID

from airflow_aiflow.durable.identity import ExecutionId, digest

if TYPE_CHECKING:
    from airflow_aiflow.durable.budget import Budget

OnClear = Literal["auto", "resume", "fresh"]

#: How a stalled task is recovered: by its history, at once and without delay, with back-off, only once its open calls
#: surely ended and with an alert, or not at all.
Recovery = Literal["auto", "rerun", "resume", "careful", "off"]


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
    #: Whether a mapped task may take over what other map indexes of it recorded before a clear.
    share_mapped: bool = True
    #: What ran above the task, by ``digest_upstream``; ``None``: it could not be read.
    upstream_digest: bytes | None = None
    #: The author's word on recovery.
    recovery: Recovery = "auto"
    #: How often recovery may make the execution runnable again; ``None``: the deployment's word.
    max_recoveries: int | None = None
    #: Of the model calls of the task, over all its attempts and map indexes; ``None``: no limit.
    budget: Budget | None = None
    #: What the author says of the task, to find its runs by; an attempt without any leaves those that are kept.
    labels: Mapping[str, str] = field(default_factory=dict)


def digest_upstream(ran: Iterable[tuple[str, int, float | None]]) -> bytes:
    """
    Hash what ran above a task: a task instance that runs again has another duration, to the microsecond.

    A duration that is null or 0 is no evidence and is left out: such an instance did not run (it was skipped, or marked
    by a person, or has nothing to run), so that it can have changed nothing below it.

    :param ran: (task id, map index, duration in seconds) of each finished transitive upstream task instance.
    :return: 32 bytes.
    """
    rows = sorted((task_id, map_index, repr(duration)) for task_id, map_index, duration in ran if duration)
    return digest("upstream", *(part for row in rows for part in row))


#: The digest of a task with nothing above it.
NOTHING_ABOVE = digest_upstream(())
