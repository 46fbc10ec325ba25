"""What a map knows of its items, in PostgreSQL: each method is one statement of ``sql/`` and one commit."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.items import FailedItem, Reusable, Wanted
from airflow_aiflow.durable.record import SharedStep
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.postgres_params import lease_params
from airflow_aiflow.storage.rows import STEP_WIDTH, Row, shared_step, step_record, utc
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import shown


class PostgresItems:
    """
    Implement the port ``ItemLedger``.

    :param connections: those of the ledger.
    """

    def __init__(self, connections: Connections) -> None:
        self._ask = connections.ask

    def reusable(self, lease: Lease, wanted: Sequence[Wanted], *, age: float) -> list[Reusable]:
        """Look for steps of other runs of the same task, in one query."""
        if not wanted:
            return []
        params = {
            "execution_id": lease.execution_pk,
            "name": shown(wanted[0].name),
            "reuse_keys": [each.reuse_key for each in wanted],
            "fingerprints": [each.fingerprint for each in wanted],
            "occurrences": [each.occurrence for each in wanted],
            "age": age,
        }
        return [
            Reusable(
                place=row[STEP_WIDTH + 3],
                record=step_record(row),
                execution_pk=row[STEP_WIDTH],
                generation=row[STEP_WIDTH + 1],
                run_id=row[STEP_WIDTH + 2],
            )
            for row in self._ask(statement("reusable"), params)
        ]

    def shared_steps(self, lease: Lease, step_keys: Sequence[bytes]) -> list[SharedStep]:
        """Look for many steps among what other map indexes of the same task recorded before this clear."""
        params = lease_params(lease) | {"step_keys": list(step_keys)}
        return [shared_step(row) for row in self._ask(statement("shared_steps"), params)] if step_keys else []

    def troubled(self, lease: Lease, generation: int) -> tuple[str | None, list[FailedItem]]:
        """Read the items of a generation that have no result and are known for it."""
        rows = self._ask(statement("troubled_items"), lease_params(lease) | {"generation": generation})
        endings = [row[4] for row in rows if row[0] is None]
        return endings[0] if endings else None, [item_of(row) for row in rows if row[0] is not None]

    def fail_items(self, lease: Lease, generation: int, items: Sequence[FailedItem]) -> None:
        """Write down failed items, or that items are at work."""
        if not items:
            return
        params = lease_params(lease) | {
            "generation": generation,
            "step_keys": [item.step_key for item in items],
            "names": [shown(item.name) for item in items],
            "numbers": [item.number for item in items],
            "item_keys": [None if item.key is None else shown(item.key) for item in items],
            "states": [item.state for item in items],
            "failures": [item.failures for item in items],
            "kills": [item.kills for item in items],
            "errors": [item.error for item in items],
        }
        self._ask(statement("fail_items"), params)

    def retry_items(self, execution_pk: int, generation: int) -> int:
        """Let dead items be tried once more by the next attempt."""
        params = {"execution_id": execution_pk, "generation": generation}
        return len(self._ask(statement("retry_items"), params))

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
        where = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index, "name": name}
        rows = self._ask(statement("failed_of_run"), where | {"limit": limit})
        return [(ExecutionId(*row[:4]), row[4], row[5], item_of(row[6:])) for row in rows]


def item_of(row: Row) -> FailedItem:
    """
    Turn a row about a failed item into the domain's value.

    :param row: from ``step_key`` to ``at``.
    """
    names = ("step_key", "name", "number", "key", "state", "failures", "kills", "error", "fence")
    return FailedItem(**dict(zip(names, row[:-1], strict=True)), at=utc(row[-1]))
