"""
One execution in PostgreSQL as people read it: attempts, generations, steps, maps, units, effects.

Reading locks nothing and decides nothing. Each list has an end, however much is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.items import FailedItem, reuse_key
from airflow_aiflow.durable.record import StepRecord, Stored
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.durable.step_arguments import MOST_OF_NAMES, names_of
from airflow_aiflow.durable.step_diff import Compared
from airflow_aiflow.durable.timeline import (
    AttemptView,
    GenerationView,
    MapView,
    PaidView,
    SavedView,
    StepRow,
    StepSheet,
    Timeline,
    UnitPage,
    generations_of,
)
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.postgres_items import item_of
from airflow_aiflow.storage.postgres_runs import PostgresRuns
from airflow_aiflow.storage.rows import Row, effect_record, utc, whole_step
from airflow_aiflow.storage.statements import statement

#: Steps of one answer: a page that shows more as bars shows none of them.
MOST_ROWS = 20_000

#: Effects of one answer.
MOST_EFFECTS = 1_000

#: Attempts of one answer, the latest ones.
MOST_ATTEMPTS = 500

#: Model calls of one name from which on they are shown as one map.
FOLD = 20

#: Reused calls whose price is looked up.
MOST_REUSED = 5_000

#: Steps with which one is compared to say what changed.
MOST_FORMER = 32

#: Steps of a generation that are compared with those of another.
MOST_COMPARED = 20_000

#: A step that began so long before its attempt did was made by somebody else: clocks of workers and of the ledger
#: differ by less.
BEFORE = timedelta(seconds=5)


class PostgresTimeline:
    """
    Read executions.

    :param connections: lends connections; may be a ledger's own.
    """

    def __init__(self, connections: Connections) -> None:
        self._ask = connections.ask
        self._runs = PostgresRuns(connections)

    def executions(
        self, dag_id: str, run_id: str, *, only: ExecutionId | None = None
    ) -> list[tuple[ExecutionView, SavedView]]:
        """
        List the executions of a run with what each did not have to pay again, in the order in which they began.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param only: this one alone.
        """
        where = {
            "dag_id": dag_id,
            "run_id": run_id,
            "task_id": None if only is None else only.task_id,
            "map_index": None if only is None else only.map_index,
        }
        saved = {row[0]: _saved(row) for row in self._ask(statement("run_saved"), where)}
        if any(one.reused_calls for one in saved.values()):
            for pk, cost in self._reused_costs(where).items():
                if pk in saved:
                    saved[pk] = replace(saved[pk], reused_cost=cost)
        return [(view, saved[view.execution_pk]) for view in self._views(where) if view.execution_pk in saved]

    def _views(self, where: dict[str, Any]) -> list[ExecutionView]:
        return self._runs.executions(
            where["dag_id"], where["run_id"], task_id=where["task_id"], map_index=where["map_index"]
        )

    def _reused_costs(self, where: dict[str, Any]) -> dict[int, Decimal]:
        rows = self._ask(statement("run_reused"), where | {"limit": MOST_REUSED})
        costs: dict[int, Decimal] = {}
        for place, cost, *_ in self._paid_for(rows):
            pk = rows[place - 1][0]
            costs[pk] = costs.get(pk, Decimal(0)) + (cost or Decimal(0))
        return costs

    def _paid_for(self, rows: Sequence[Row]) -> list[Row]:
        """Find the records behind reused ones; rows: execution, DAG, task, name, fingerprint, occurrence."""
        keys = [reuse_key(row[1], row[2], row[3], bytes(row[4]), row[5]) for row in rows]
        params = {"reuse_keys": keys, "fingerprints": [bytes(row[4]) for row in rows]}
        return self._ask(statement("reused_paid"), params) if rows else []

    def find(self, execution: ExecutionId) -> ExecutionView | None:
        """
        Read an execution as it stands.

        :param execution: which one.
        :return: ``None``: it never ran durable.
        """
        found = self._runs.executions(
            execution.dag_id, execution.run_id, task_id=execution.task_id, map_index=execution.map_index
        )
        return found[0] if found else None

    def timeline(self, execution: ExecutionId, generation: int | None = None) -> Timeline | None:
        """
        Read an execution's life.

        :param execution: which one.
        :param generation: of its steps; ``None``: the current one.
        :return: ``None``: it never ran durable, or has no such generation.
        """
        found = self.executions(execution.dag_id, execution.run_id, only=execution)
        if not found:
            return None
        view, saved = found[0]
        chosen = view.generation if generation is None else generation
        if chosen > view.generation:
            return None
        where = {"execution_id": view.execution_pk, "generation": chosen}
        attempts = self.attempts(view.execution_pk)
        rows = self._ask(statement("timeline_rows"), where | {"fold": FOLD, "limit": MOST_ROWS + 1})
        effects = self._effects(view.execution_pk)
        return Timeline(
            execution=view if chosen == view.generation else self._of_generation(view, where),
            saved=saved,
            generation=chosen,
            generations=self._generations(view, attempts),
            attempts=attempts,
            rows=[_step_row(row) for row in rows[:MOST_ROWS]],
            maps=self._maps(where),
            effects=effects[:MOST_EFFECTS],
            wasted=PaidView(*self._ask(statement("timeline_wasted"), where)[0]),
            truncated=len(rows) > MOST_ROWS or len(effects) > MOST_EFFECTS or len(attempts) == MOST_ATTEMPTS,
        )

    def _of_generation(self, view: ExecutionView, where: dict[str, Any]) -> ExecutionView:
        [(steps, calls, cost, unpriced, tokens_in, tokens_out)] = self._ask(statement("generation_paid"), where)
        return replace(
            view,
            steps=steps,
            calls=calls,
            cost=cost,
            unpriced=unpriced,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )

    def attempts(self, execution_pk: int) -> list[AttemptView]:
        """
        List the attempts of an execution, the first one first.

        :param execution_pk: its row.
        """
        rows = self._ask(statement("execution_attempts"), {"execution_id": execution_pk, "limit": MOST_ATTEMPTS})
        return [
            AttemptView(
                fence=row[0],
                attempt=row[1],
                sign=row[2],
                try_number=row[3],
                started_at=utc(row[4]),
                ended_at=None if row[5] is None else utc(row[5]),
                ending=row[6],
                live=row[7],
                died_in=row[8],
                host=row[9]["hostname"],
                pid=row[9]["pid"],
            )
            for row in rows
        ]

    def _generations(self, view: ExecutionView, attempts: Sequence[AttemptView]) -> Sequence[GenerationView]:
        rows = self._ask(statement("execution_generations"), {"execution_id": view.execution_pk})
        return generations_of(attempts, {row[0]: row[1] for row in rows}, view.generation)

    def _maps(self, where: dict[str, Any]) -> list[MapView]:
        failed = {row[0]: row[1] for row in self._ask(statement("timeline_failed"), where)}
        return [
            MapView(name, units, steps, failed.get(name, 0), calls, cost, utc(first_at), utc(last_at))
            for name, units, steps, calls, cost, first_at, last_at in self._ask(
                statement("timeline_maps"), where | {"fold": FOLD}
            )
        ]

    def _effects(self, execution_pk: int) -> list[EffectRecord]:
        params = {"execution_id": execution_pk, "limit": MOST_EFFECTS + 1}
        return [effect_record(row[0]) for row in self._ask(statement("execution_effects"), params)]

    def units(self, execution_pk: int, generation: int, name: str, *, after: bytes = b"", limit: int) -> UnitPage:
        """
        List units of a map.

        :param execution_pk: the execution's row.
        :param generation: of its records.
        :param name: the map's.
        :param after: key of the last one of the page before.
        :param limit: at most so many.
        """
        where = {"execution_id": execution_pk, "generation": generation, "map": name}
        rows = self._ask(statement("map_units"), where | {"after": after, "limit": limit + 1})
        failed: list[FailedItem] = []
        if not after:
            failed = [item_of(row) for row in self._ask(statement("map_failed"), where | {"limit": limit})]
        return UnitPage([_step_row(row) for row in rows[:limit]], failed, more=len(rows) > limit)

    def step(self, view: ExecutionView, generation: int, key: bytes) -> StepSheet | None:
        """
        Read one recorded step.

        :param view: of its execution.
        :param generation: in which it is recorded.
        :param key: its step key.
        :return: ``None``: there is none.
        """
        where = {"execution_id": view.execution_pk, "generation": generation}
        records = self._ask(statement("steps_by_key"), where | {"step_keys": [key]})
        bars = self._ask(statement("step_bar"), where | {"step_key": key})
        if not records or not bars:
            return None
        record, row = whole_step(records[0]), _step_row(bars[0])
        params = where | {"step_key": key, "name": record.name, "unit": record.unit, "limit": MOST_FORMER}
        params["names"] = MOST_OF_NAMES
        before = self._ask(statement("step_former"), params) if generation > 1 else []
        attempts = {one.fence: one for one in self.attempts(view.execution_pk)}
        return StepSheet(
            record=record,
            row=row,
            execution_pk=view.execution_pk,
            generation=generation,
            attempt=attempts[record.fence],
            before=[whole_step(each) for each in before],
            names=names_of(record.arguments) or (self._names(where, record) if before else None),
        )

    def _names(self, where: dict[str, Any], record: StepRecord) -> tuple[str, ...] | None:
        params = where | {"name": record.name, "kind": record.kind, "names": MOST_OF_NAMES}
        return next((names_of(row[0]) for row in self._ask(statement("step_named"), params)), None)

    def told(self, sheet: StepSheet) -> list[bytes]:
        """
        Read the events that were committed with a step, or about then.

        :param sheet: the step.
        :return: their payloads, as stored.
        """
        params = {
            "execution_id": sheet.execution_pk,
            "generation": sheet.generation,
            "step_key": sheet.record.step_key,
        }
        return [bytes(row[0]) for row in self._ask(statement("step_told"), params)]

    def compared(self, execution_pk: int, generation: int) -> list[Compared]:
        """
        Read what a generation has recorded, to compare it with another.

        :param execution_pk: its execution's row.
        :param generation: which one.
        """
        params: dict[str, Any] = {"execution_id": execution_pk, "generation": generation}
        params |= {"limit": MOST_COMPARED, "names": MOST_OF_NAMES}
        return [
            Compared(
                key=bytes(row[0]),
                kind=row[1],
                name=row[2],
                unit=row[3],
                result_hash=bytes(row[4]),
                prints=None if row[5] is None else bytes(row[5]),
                duration_ms=row[6],
                model=row[7],
                tokens_in=row[8],
                tokens_out=row[9],
                cost=row[10],
                names=names_of(row[11]),
            )
            for row in self._ask(statement("diff_steps"), params)
        ]

    def results(self, execution_pk: int, generation: int, keys: Iterable[bytes]) -> dict[bytes, Stored]:
        """
        Read the results of some steps.

        :param execution_pk: their execution's row.
        :param generation: theirs.
        :param keys: their step keys.
        :return: by key, as the ledger keeps them.
        """
        return {record.step_key: record.result for record in self.records(execution_pk, generation, keys)}

    def records(self, execution_pk: int, generation: int, keys: Iterable[bytes]) -> list[StepRecord]:
        """
        Read some steps, whole.

        :param execution_pk: their execution's row.
        :param generation: theirs.
        :param keys: their step keys.
        """
        params = {"execution_id": execution_pk, "generation": generation, "step_keys": list(keys)}
        return [whole_step(row) for row in self._ask(statement("steps_by_key"), params)]

    def has_artifact(self, execution_pk: int, sha256: bytes) -> bool:
        """
        Say whether an execution has recorded an artifact.

        :param execution_pk: its row.
        :param sha256: the artifact's address.
        """
        params = {"execution_id": execution_pk, "sha256": sha256}
        return bool(self._ask(statement("artifact_recorded"), params)[0][0])


def _saved(row: Row) -> SavedView:
    _, started_at, attempts, calls, cost, reused, recoveries = row
    return SavedView(utc(started_at), attempts, int(calls), cost, int(reused), recoveries=recoveries)


def _step_row(row: Row) -> StepRow:
    key, kind, name, unit, fence, ended_at, duration_ms, recorded_at, tokens_in, cost, attempt_began = row
    ended, took = utc(ended_at), timedelta(milliseconds=max(0.0, min(duration_ms, 1e12)))
    reused = (kind == "llm" and tokens_in is None) or ended < utc(attempt_began) - BEFORE
    if reused:
        # It was made elsewhere: here it was taken.
        ended, took = utc(recorded_at), timedelta(0)
    return StepRow(
        bytes(key), kind, name, unit, fence, _back(ended, took), ended, reused, int(tokens_in is not None), cost
    )


def _back(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment - by
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
