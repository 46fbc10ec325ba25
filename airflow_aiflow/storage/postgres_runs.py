"""
Runs in PostgreSQL as people read them, and what a person wishes of a clear.

Reading locks nothing and decides nothing. A wish is about the attempt after the fence that stands when it is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId
from airflow_aiflow.durable.run_view import (
    EffectCount,
    ExecutionView,
    OpenQuestion,
    RunSummary,
    SpendingView,
    StepView,
)
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.rows import Row, utc
from airflow_aiflow.storage.statements import statement

#: Steps of one list: a screen holds fifty, a program may want them all.
MOST_STEPS = 10_000


class PostgresRuns(LedgerPart):
    """
    Read runs.

    :param connections: lends connections; may be a ledger's own.
    """

    def executions(
        self, dag_id: str, run_id: str, *, task_id: str | None = None, map_index: int = UNMAPPED
    ) -> list[ExecutionView]:
        """
        List the executions of a run, in the order in which they began.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param task_id: only of this task; ``None``: of all.
        :param map_index: with ``task_id``: only of this map index.
        :return: empty: no durable task of it ever ran.
        """
        params = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        effects: dict[int, list[EffectCount]] = defaultdict(list)
        for pk, name, state, count, numbers in self._ask(statement("run_effects"), params):
            effects[pk].append(EffectCount(name, state, count, tuple(numbers)))
        questions: dict[int, list[OpenQuestion]] = defaultdict(list)
        for pk, number, kind, subject in self._ask(statement("run_questions"), params):
            questions[pk].append(OpenQuestion(number, kind, subject))
        return [
            ExecutionView(
                row[0],
                ExecutionId(*row[1:5]),
                ExecutionState(row[5]),
                generation=row[6],
                heard=row[7],
                attempt=row[8],
                sign=row[9],
                on_clear=row[10],
                started_at=utc(row[11]),
                finished_at=None if row[12] is None else utc(row[12]),
                pause_reason=row[13],
                live=row[14],
                steps=row[15],
                calls=row[16],
                tokens_in=row[17],
                tokens_out=row[18],
                cost=row[19],
                unpriced=row[20],
                effects=tuple(effects[row[0]]),
                questions=tuple(questions[row[0]]),
                labels=row[21] or {},
            )
            for row in self._ask(statement("run_executions"), params)
        ]

    def summaries(self, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], RunSummary]:
        """
        Sum up many runs, in one query.

        :param runs: (DAG id, run id).
        :return: without those of which no durable task ever ran.
        """
        params = {"dag_ids": [dag_id for dag_id, _ in runs], "run_ids": [run_id for _, run_id in runs]}
        return {runs[row[0] - 1]: RunSummary(*row[1:]) for row in self._ask(statement("run_summaries"), params)}

    def steps(
        self,
        dag_id: str,
        run_id: str,
        *,
        task_id: str | None = None,
        map_index: int | None = None,
        limit: int = MOST_STEPS,
    ) -> list[StepView]:
        """
        List the recorded steps of a run's current generations.

        :param dag_id: the DAG.
        :param run_id: the run.
        :param task_id: only of this task.
        :param map_index: only of this map index.
        :param limit: at most so many.
        """
        params = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index, "limit": limit}
        return [
            StepView(
                task_id=row[0],
                map_index=row[1],
                kind=row[2],
                name=row[3],
                depth=row[4].count("/") + 1 if row[4] else 0,
                attempt=row[5],
                ended_at=utc(row[6]),
                duration_ms=row[7],
                model=row[8],
                tokens_in=row[9],
                tokens_out=row[10],
                cost=row[11],
                size=row[12],
            )
            for row in self._ask(statement("run_steps"), params)
        ]

    def spending(self, dag_id: str, run_id: str) -> list[SpendingView]:
        """
        Sum up what each step of a run spent on model calls.

        :param dag_id: the DAG.
        :param run_id: the run.
        """
        rows = self._ask(statement("run_spending"), {"dag_id": dag_id, "run_id": run_id})
        return [replace(_spending(row[1], row), task_id=row[0]) for row in rows]

    def spending_of_runs(self, dag_id: str, *, limit: int) -> list[SpendingView]:
        """
        Sum up what each run of a DAG spent on model calls, the last one first.

        :param dag_id: the DAG.
        :param limit: at most so many.
        """
        rows = self._ask(statement("dag_spending"), {"dag_id": dag_id, "limit": limit})
        return [replace(_spending(row[0], row), began_at=utc(row[1])) for row in rows]

    def wish(self, executions: Iterable[int], on_clear: OnClear) -> None:
        """
        Wish something of the next attempts, before Airflow is asked to clear them.

        :param executions: their rows.
        :param on_clear: ``resume`` or ``fresh``.
        """
        self._ask(statement("wish"), {"execution_ids": list(executions), "on_clear": on_clear})

    def cleared(self, executions: Iterable[int]) -> None:
        """
        Note that Airflow has taken the clear.

        :param executions: as they were given to ``wish``.
        """
        self._ask(statement("wish_cleared"), {"execution_ids": list(executions)})

    def withdraw(self, executions: Iterable[int]) -> None:
        """
        Take wishes back whose clear Airflow has refused.

        :param executions: as they were given to ``wish``.
        """
        self._ask(statement("wish_withdrawn"), {"execution_ids": list(executions)})


def _spending(name: str, row: Row) -> SpendingView:
    """Turn a row of the two statements about spending into a view; the first two columns differ."""
    _, _, calls, tokens_in, tokens_out, cost, unpriced, wasted = row
    return SpendingView(name, calls, tokens_in, tokens_out, cost, unpriced, wasted)
