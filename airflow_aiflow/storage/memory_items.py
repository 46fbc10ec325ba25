"""What a map knows of its items, on the memory ledger's tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.items import FailedItem, Reusable, Wanted
from airflow_aiflow.durable.record import SharedStep
from airflow_aiflow.storage import memory_steps
from airflow_aiflow.storage.memory_tables import Tables
from airflow_aiflow.storage.rows import step_record


class MemoryItems:
    """
    Implement the port ``ItemLedger`` without a database.

    :param statement: gives the ledger's tables, under its lock.
    """

    def __init__(self, statement: Callable[[], AbstractContextManager[Tables]]) -> None:
        self._statement = statement

    def reusable(self, lease: Lease, wanted: Sequence[Wanted], *, age: float) -> list[Reusable]:
        """Look for steps of other runs of the same task."""
        with self._statement() as tables:
            found = ((place, _newest(tables, lease, each, age)) for place, each in enumerate(wanted))
            return [replace(each, place=place) for place, each in found if each is not None]

    def shared_steps(self, lease: Lease, step_keys: Sequence[bytes]) -> list[SharedStep]:
        """Look for many steps among what other map indexes of the same task recorded before this clear."""
        with self._statement() as tables:
            found = (memory_steps.shared(tables, lease, key) for key in dict.fromkeys(step_keys))
            return [each for each in found if each is not None]

    def troubled(self, lease: Lease, generation: int) -> tuple[str | None, list[FailedItem]]:
        """Read the items of a generation that have no result and are known for it."""
        with self._statement() as tables:
            before = tables.attempts.get((lease.execution_pk, lease.fence - 1))
            return None if before is None else before.ending or "", _without_result(
                tables, lease.execution_pk, generation
            )

    def fail_items(self, lease: Lease, generation: int, items: Sequence[FailedItem]) -> None:
        """Write down failed items, or that items are at work."""
        with self._statement() as tables:
            held = tables.failed_items.setdefault((lease.execution_pk, generation), {})
            for item in items:
                before = held.get(item.step_key)
                if before is None or before.fence <= lease.fence:
                    held[item.step_key] = replace(item, fence=lease.fence, at=tables.clock.now())

    def retry_items(self, execution_pk: int, generation: int) -> int:
        """Let dead items be tried once more by the next attempt."""
        with self._statement() as tables:
            held = tables.failed_items.get((execution_pk, generation), {})
            dead = {key: item for key, item in held.items() if item.state in ("dead", "failed")}
            held.update({key: replace(item, state="retry", failures=0, kills=0) for key, item in dead.items()})
            return len(dead)

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
        """List the items of a run that have no result."""
        with self._statement() as tables:
            rows = [
                row for row in tables.by_pk.values() if (row.execution.dag_id, row.execution.run_id) == (dag_id, run_id)
            ]
            rows.sort(key=lambda row: (row.execution.task_id, row.execution.map_index))
            found = [
                (row.execution, row.pk, row.generation, item)
                for row in rows
                if task_id in (None, row.execution.task_id) and map_index in (None, row.execution.map_index)
                for item in sorted(
                    _without_result(tables, row.pk, row.generation), key=lambda item: (item.name, item.number)
                )
                if name in (None, item.name)
            ]
            return found[:limit]


def _without_result(tables: Tables, execution_pk: int, generation: int) -> list[FailedItem]:
    steps = tables.steps.get((execution_pk, generation), {})
    held = tables.failed_items.get((execution_pk, generation), {})
    return [item for key, item in held.items() if key not in steps]


def _newest(tables: Tables, lease: Lease, wanted: Wanted, age: float) -> Reusable | None:
    me = tables.by_pk[lease.execution_pk].execution
    found = []
    for at, key, pk, generation, step_key in tables.reuse:
        other = tables.by_pk[pk].execution
        row = tables.steps.get((pk, generation), {}).get(step_key)
        if key != wanted.reuse_key or row is None or at <= tables.clock.monotonic() - age:
            continue
        if (other.dag_id, other.task_id) != (me.dag_id, me.task_id) or other.run_id == me.run_id:
            continue
        held = tables.leases.get(pk)
        if held is not None and held.expires_at > tables.clock.monotonic():
            continue
        step = step_record(row)
        if (step.name, step.fingerprint, step.occurrence) == (wanted.name, wanted.fingerprint, wanted.occurrence):
            found.append((at, Reusable(0, step, pk, generation, other.run_id)))
    return max(found, key=lambda each: each[0])[1] if found else None
