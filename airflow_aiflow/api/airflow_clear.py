"""
What Airflow knows of a DAG's runs and of a clear, through its own code: this runs in its API server alone.

Nothing here decides and nothing is changed: the clear is a dry run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from airflow.api_fastapi.common.dagbag import create_dag_bag
from airflow.models.asset import AssetModel
from airflow.models.dagrun import DagRun
from airflow.models.expandinput import NotFullyPopulated
from airflow.models.taskinstance import find_relevant_relatives
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from airflow_aiflow.api.reading import ClearPlan, LatestRun
from airflow_aiflow.config import heartbeat_timeout
from airflow_aiflow.durable.clear_preview import Instance

if TYPE_CHECKING:
    from airflow.models.dagbag import DBDagBag
    from airflow.serialization.definitions.dag import SerializedDAG
    from sqlalchemy.orm import Session

Marker = str | tuple[str, int]


class AirflowClear:
    """Implement the protocol ``AirflowSide``. Safe for use from several threads."""

    def latest(self, dag_id: str, limit: int) -> Sequence[LatestRun]:
        """List the last runs of a DAG, the latest first."""
        with create_session() as session:
            query = select(DagRun.run_id, DagRun.state, DagRun.start_date, DagRun.end_date)
            found = session.execute(query.where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc()).limit(limit))
            return [LatestRun(run_id, str(state), began, ended) for run_id, state, began, ended in found]

    def plan(
        self,
        dag_id: str,
        run_id: str,
        tasks: Sequence[Marker] | None,
        *,
        downstream: bool,
        upstream: bool,
        only_failed: bool,
    ) -> ClearPlan:
        """
        Say what a clear would do.

        :raises LookupError: if Airflow does not know the run or a task.
        """
        with create_session() as session:
            run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id).limit(1))
            dag = None if run is None else _bag().get_dag_for_run(run, session=session)
            if dag is None:
                raise LookupError(f"{dag_id} has no run {run_id}")
            chosen = None
            if tasks is not None:
                chosen = _with_relatives(session, dag, run_id, tasks, downstream=downstream, upstream=upstream)
            found = dag.clear(dry_run=True, task_ids=chosen, run_id=run_id, only_failed=only_failed, session=session)
            return ClearPlan(
                instances=[
                    Instance(one.task_id, one.map_index, None if one.state is None else str(one.state)) for one in found
                ],
                downstream={task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
                assets=_assets(session, dag_id),
            )

    def heartbeat_timeout(self) -> float:
        """Give the seconds after which Airflow alone finds a dead worker's task."""
        return heartbeat_timeout()


@cache
def _bag() -> DBDagBag:
    return create_dag_bag()


def _with_relatives(
    session: Session, dag: SerializedDAG, run_id: str, tasks: Sequence[Marker], *, downstream: bool, upstream: bool
) -> list[Marker]:
    """Choose as Airflow's own route does."""
    known = set(dag.task_dict)
    unknown = sorted({one if isinstance(one, str) else one[0] for one in tasks} - known)
    if unknown:
        raise LookupError(f"{dag.dag_id} has no task {unknown[0]}")
    normal = {one for one in tasks if isinstance(one, str)}
    mapped = {one for one in tasks if not isinstance(one, str)}
    directions: tuple[tuple[bool, Literal["upstream", "downstream"]], ...] = (
        (upstream, "upstream"),
        (downstream, "downstream"),
    )
    for wanted, direction in directions:
        if wanted:
            try:
                found: Any = find_relevant_relatives(
                    normal, mapped, dag=dag, run_id=run_id, direction=direction, session=session
                )
            except NotFullyPopulated as error:
                raise LookupError(f"{dag.dag_id} has not come so far that its tasks are mapped") from error
            normal |= {one for one in found if isinstance(one, str)}
            mapped |= {one for one in found if not isinstance(one, str)}
    return [*normal, *(one for one in mapped if one[0] not in normal)]


def _assets(session: Session, dag_id: str) -> list[Mapping[str, Any]]:
    """List the assets that a DAG's tasks produce, as the REST API does."""
    query = (
        select(AssetModel)
        .where(AssetModel.producing_tasks.any(dag_id=dag_id))
        .options(selectinload(AssetModel.producing_tasks), selectinload(AssetModel.scheduled_dags))
    )
    return [
        {
            "uri": asset.uri,
            "producing_tasks": [{"dag_id": one.dag_id, "task_id": one.task_id} for one in asset.producing_tasks],
            "scheduled_dags": [{"dag_id": one.dag_id} for one in asset.scheduled_dags],
        }
        for asset in session.scalars(query)
    ]
