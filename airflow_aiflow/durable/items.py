"""What the ledger keeps of a map's items beside their results: where other runs have them, and which ones failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import ExecutionId, digest
from airflow_aiflow.durable.record import SharedStep, StepRecord

ItemState = Literal["at_work", "failed", "dead", "retry"]


def reuse_key(dag_id: str, task_id: str, name: str, fingerprint: bytes, occurrence: int) -> int:
    """
    Say where the same step of other runs is looked for.

    :param name: the step's name.
    :param fingerprint: 32 bytes over what decides its outcome.
    :param occurrence: which of equal calls it is.
    :return: eight bytes of a hash, signed as the database's ``bigint``; what is found there is compared in full.
    """
    hashed = digest("reuse", dag_id, task_id, name, fingerprint, occurrence)
    return int.from_bytes(hashed[:8], "big", signed=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Hold a step that is looked for among other runs."""

    reuse_key: int
    name: str
    fingerprint: bytes
    occurrence: int


@dataclass(frozen=True, slots=True)
class Reusable:
    """
    Hold a step that another run recorded.

    :param place: of what was wanted, from 0.
    """

    place: int
    record: StepRecord
    execution_pk: int
    generation: int
    run_id: str


@dataclass(frozen=True, slots=True)
class FailedItem:
    """
    Hold an item that has no result.

    :param number: its place in the list, from 0.
    :param key: its own; ``None``: it has none.
    :param failures: how often it failed, over all tries.
    :param kills: how many processes were lost while it was at work, as far as is known.
    :param error: the stored form of ``{"type": ..., "message": ...}``; ``None``: it did not raise.
    :param fence: of the attempt that wrote this last.
    """

    step_key: bytes
    name: str
    number: int
    key: str | None
    state: ItemState
    failures: int
    kills: int
    error: bytes | None
    fence: int
    at: datetime | None = None


class ItemLedger(Protocol):
    """
    Keep what a map knows of its items. Every method is one statement and may be repeated after a lost acknowledgement.

    Errors are those of ``Ledger``.
    """

    def reusable(self, lease: Lease, wanted: Sequence[Wanted], *, age: float) -> list[Reusable]:
        """
        Look for steps of other runs of the same task, in one query; of each the newest counts.

        None that an execution recorded which holds a live lease, or that was at work when the server became another
        one: what else it recorded may be lost.

        :param age: seconds; older records do not count.
        """

    def shared_steps(self, lease: Lease, step_keys: Sequence[bytes]) -> list[SharedStep]:
        """
        Look for many steps among what other map indexes of the same task recorded before this clear, in one query.

        Only attempts with a lower clear number count, and none that holds a live lease; the newest generation wins.
        """

    def troubled(self, lease: Lease, generation: int) -> tuple[str | None, list[FailedItem]]:
        """
        Read the items of a generation that have no result and are known for it.

        :return: how the attempt before this one ended (``None``: there was none), and the items.
        """

    def fail_items(self, lease: Lease, generation: int, items: Sequence[FailedItem]) -> None:
        """Write down failed items, or that items are at work; what was known of an item is replaced."""

    def retry_items(self, execution_pk: int, generation: int) -> int:
        """
        Let dead items be tried once more by the next attempt.

        :return: how many there were.
        """

    def failed_of_run(
        self,
        dag_id: str,
        run_id: str,
        *,
        task_id: str | None = None,
        map_index: int | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[tuple[ExecutionId, int, int, FailedItem]]:
        """
        List the items of a run that have no result, in the order of tasks and lists.

        :param task_id: of this task alone.
        :param map_index: of this map index alone.
        :param name: of the map of this name alone.
        :param limit: at most so many; ``None``: all of them.
        :return: (execution, its number, generation, item) each, of current generations.
        """
