"""Put a comparison together: read both sides, compare, read the results that differ."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import HTTPException

from airflow_aiflow.api.addresses import MISSING
from airflow_aiflow.api.execution_models import DiffModel
from airflow_aiflow.api.step_views import diff_model
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.durable.step_diff import Compared, Difference, compare
from airflow_aiflow.llm.call import PART_NAMES
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres_timeline import PostgresTimeline

#: Steps whose results are compared line by line.
MOST_RESULTS = 200

#: Executions of a run that are compared with another's.
MOST_EXECUTIONS = 200

#: An execution's row and a generation; ``None``: there is nothing on that side.
Side = tuple[int, int] | None


class Comparing:
    """
    Compare.

    :param timeline: reads.
    :param cipher: opens what is encrypted.
    :param results: whether results may be shown.
    """

    def __init__(self, timeline: PostgresTimeline, cipher: PayloadCipher, *, results: bool) -> None:
        self._timeline = timeline
        self._cipher = cipher
        self._results = results

    def generations(self, execution_pk: int, one: int, other: int) -> DiffModel:
        """
        Compare two generations of an execution.

        :param execution_pk: its row.
        :param one: the former one.
        :param other: the later one.
        """
        return self._compared([((execution_pk, one), (execution_pk, other))])

    def runs(self, dag_id: str, one: str, other: str, task_id: str | None, map_index: int) -> DiffModel:
        """
        Compare two runs of a DAG.

        :param dag_id: the DAG.
        :param one: the former run.
        :param other: the later run.
        :param task_id: of this task alone; ``None``: of all.
        :param map_index: with ``task_id``: of this map index.
        """
        left, right = (self._views(dag_id, run_id, task_id, map_index) for run_id in (one, other))
        if not left and not right:
            raise HTTPException(404, MISSING)
        places = list(dict.fromkeys([*left, *right]))[:MOST_EXECUTIONS]
        sides = [(_side(left.get(place)), _side(right.get(place))) for place in places]
        return self._compared(sides)

    def _views(
        self, dag_id: str, run_id: str, task_id: str | None, map_index: int
    ) -> dict[tuple[str, int], ExecutionView]:
        if task_id is not None:
            view = self._timeline.find(ExecutionId(dag_id, run_id, task_id, map_index))
            found = [] if view is None else [view]
        else:
            found = [view for view, _ in self._timeline.executions(dag_id, run_id)]
        return {(view.execution.task_id, view.execution.map_index): view for view in found}

    def _compared(self, sides: Sequence[tuple[Side, Side]]) -> DiffModel:
        found: list[Difference] = []
        before: dict[bytes, Stored] = {}
        after: dict[bytes, Stored] = {}
        for left, right in sides:
            differences = compare(self._steps(left), self._steps(right), PART_NAMES)
            found += differences
            changed = [each for each in differences if each.verdict == "changed" and self._results]
            changed = changed[: max(0, MOST_RESULTS - len(before))]
            before |= self._stored(left, [each.before.key for each in changed if each.before is not None])
            after |= self._stored(right, [each.after.key for each in changed if each.after is not None])
        return diff_model(found, before, after, self._cipher)

    def _steps(self, side: Side) -> Sequence[Compared]:
        return [] if side is None else self._timeline.compared(*side)

    def _stored(self, side: Side, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        return {} if side is None or not keys else self._timeline.results(*side, keys)


def _side(view: ExecutionView | None) -> Side:
    return None if view is None else (view.execution_pk, view.generation)
