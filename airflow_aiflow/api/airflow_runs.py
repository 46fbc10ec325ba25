"""
The DAG runs behind submissions, through Airflow's own code: this runs in its API server alone.

Nothing here decides: what is allowed the routes have asked, what a state means ``durable.submission`` says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.common.dagbag import create_dag_bag
from airflow.api_fastapi.core_api.datamodels.dag_run import DagRunMutableStates
from airflow.api_fastapi.core_api.services.public.dag_run import patch_dag_run_state
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.serde import deserialize
from airflow.serialization.definitions.notset import is_arg_set
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import or_, select, tuple_
from sqlalchemy.exc import IntegrityError

from airflow_aiflow.api.run_control import hold_run, release_run, stop_run
from airflow_aiflow.durable.hold import freed, is_held
from airflow_aiflow.durable.submission import Submission, pointer
from airflow_aiflow.durable.submission_ports import StoredResult
from airflow_aiflow.exceptions import SubmissionRefusedError
from airflow_aiflow.policy import marked_tasks
from airflow_aiflow.xcom import reference_in

if TYPE_CHECKING:
    from airflow.models.dagbag import DBDagBag
    from airflow.serialization.definitions.dag import SerializedDAG
    from sqlalchemy.orm import Session

    from airflow_aiflow.durable.submission_ports import Instance


#: Who ends runs, for the audit log: a person did, by the API of submissions.
BY = "aiflow submissions"


@dataclass(frozen=True, slots=True)
class RunView:
    """
    Show a DAG run.

    :param state: Airflow's word.
    :param held: whether nothing of it starts before it is let go.
    """

    state: str
    held: bool = False


class NoResultError(LookupError):
    """The run has no result any more."""


class AirflowRuns:
    """Make, read and end the DAG runs of submissions. Safe for use from several threads."""

    def check(self, pipeline: str, given: Mapping[str, Any]) -> None:
        """
        Refuse what can't become a run, before anything is written.

        :param pipeline: the DAG.
        :param given: its params.
        :raises LookupError: if there is no such DAG.
        :raises SubmissionRefusedError: if it can't be triggered, the input does not fit its params, or nothing says
            which task's result is the submission's.
        """
        with create_session() as session:
            dag = _runnable(session, pipeline)
            _check_input(dag, given)
            result_task(dag)

    def make(self, submission: Submission) -> None:
        """
        Make the run, or find it made.

        :raises LookupError: if the DAG is gone.
        :raises SubmissionRefusedError: if it can't be made.
        """
        try:
            with create_session() as session:
                dag = _runnable(session, submission.pipeline)
                if _find(session, submission) is not None:
                    return
                dag.create_dagrun(
                    run_id=submission.run_id,
                    run_after=datetime.now(UTC),
                    conf=dict(submission.input),
                    run_type=DagRunType.MANUAL,
                    triggered_by=DagRunTriggeredByType.REST_API,
                    triggering_user_name=submission.user,
                    state=DagRunState.QUEUED,
                    note=f"submission {submission.submission_id}",
                    session=session,
                )
        except IntegrityError:
            # Another server made it at the same moment, or this is about something else: then it is not there.
            if self.look(submission) is None:
                raise
        except (AirflowException, ValueError) as error:
            raise SubmissionRefusedError(f"{submission.pipeline}: no run can be made: {error}") from error

    def look(self, submission: Submission) -> RunView | None:
        """
        Give the run as it stands.

        :return: ``None``: it is not there.
        """
        with create_session() as session:
            run = _find(session, submission)
            return None if run is None else RunView(str(run.state), is_held(run.run_after))

    def look_many(self, submissions: Sequence[Submission]) -> dict[tuple[str, str], RunView]:
        """
        Give the runs as they stand, in one query.

        :return: by DAG id and run id, without those that are gone.
        """
        with create_session() as session:
            wanted = tuple_(DagRun.dag_id, DagRun.run_id).in_([one.run for one in submissions])
            found = session.execute(select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.run_after).where(wanted))
            return {(row[0], row[1]): RunView(str(row[2]), is_held(row[3])) for row in found}

    def words(self, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """
        Give Airflow's word on each of many runs, in one query.

        :param runs: (DAG id, run id).
        """
        with create_session() as session:
            wanted = tuple_(DagRun.dag_id, DagRun.run_id).in_(list(runs))
            found = session.execute(select(DagRun.dag_id, DagRun.run_id, DagRun.state).where(wanted))
            return {(dag_id, run_id): str(state) for dag_id, run_id, state in found}

    def hold(self, submission: Submission) -> None:
        """Let nothing more of the run start, until it is let go."""
        with create_session() as session:
            if (run := _unfinished(session, submission)) is not None:
                hold_run(session, run)

    def release(self, submission: Submission, waiting: Collection[Instance]) -> None:
        """Let the run go on."""
        with create_session() as session:
            if (run := _unfinished(session, submission)) is not None:
                release_run(session, run, waiting)

    def stop(self, submission: Submission, keep: Collection[Instance]) -> bool:
        """
        Let nothing more of the run start, and end what is at work but ``keep``.

        :return: whether any of ``keep`` is still to end by itself.
        """
        with create_session() as session:
            run = _unfinished(session, submission) if keep else None
            dag = None if run is None else _bag().get_dag_for_run(run, session=session)
            if run is None or dag is None:
                return False
            going, changed = stop_run(session, run, dag, keep)
            if changed:
                session.add(_by_a_person(submission))
            return going

    def end(self, submission: Submission) -> None:
        """End the run: what runs is ended by its supervisor, what has not begun is skipped."""
        with create_session() as session:
            run = _unfinished(session, submission)
            dag = None if run is None else _bag().get_dag_for_run(run, session=session)
            if run is None or dag is None:
                return
            run.run_after = freed(run.run_after)
            session.add(_by_a_person(submission))
            patch_dag_run_state(dag=dag, dag_run=run, state=DagRunMutableStates.FAILED, session=session)

    def again(self, submission: Submission, *, only_failed: bool) -> bool:
        """
        Clear the run: what is recorded replays.

        :param only_failed: leave alone what succeeded.
        :return: whether there is a run to clear.
        """
        with create_session() as session:
            run = _find(session, submission)
            dag = None if run is None else _bag().get_dag_for_run(run, session=session)
            if run is None or dag is None:
                return False
            run.run_after = freed(run.run_after)
            undone = None
            if only_failed:
                # Also what was skipped because the run was ended: Airflow's own "only failed" leaves that out.
                found = select(TaskInstance.task_id, TaskInstance.map_index).where(
                    TaskInstance.dag_id == submission.pipeline,
                    TaskInstance.run_id == submission.run_id,
                    or_(TaskInstance.state.is_(None), TaskInstance.state != TaskInstanceState.SUCCESS),
                )
                undone = [(task_id, map_index) for task_id, map_index in session.execute(found)]
            if undone != []:
                dag.clear(run_id=submission.run_id, task_ids=undone, session=session)
            return True

    def result(self, submission: Submission) -> Any:
        """
        Give the value that the result's task returned; a large one unread.

        :return: ``None`` also where it returned nothing.
        :raises NoResultError: if the run is gone.
        """
        with create_session() as session:
            run = _find(session, submission)
            dag = None if run is None else _bag().get_dag_for_run(run, session=session)
            if dag is None:
                raise NoResultError("its run is gone")
            # What a run's task was marked by stands with its result; the DAG that the server knows does not tell it.
            marked = select(XComModel.task_id).where(
                XComModel.dag_id == submission.pipeline,
                XComModel.run_id == submission.run_id,
                XComModel.dag_result.is_(True),
            )
            task_id = session.scalar(marked.limit(1)) or result_task(dag)
            query = XComModel.get_many(
                run_id=submission.run_id, key=XCOM_RETURN_KEY, task_ids=task_id, dag_ids=submission.pipeline
            )
            rows: list[Any] = list(session.scalars(query.order_by(None).order_by(XComModel.map_index)))
            values = [row.value for row in rows]
            mapped = bool(rows) and rows[0].map_index >= 0
        if not values:
            return None  # Airflow keeps no XCom of a task that returned nothing
        return returned(values) if mapped else returned(values[:1], alone=True)


def returned(values: Sequence[Any], *, alone: bool = False) -> Any:
    """
    Give what task instances returned; unread where some of it is large.

    :param values: as they stand in XCom, in order.
    :param alone: it is the one value, and no list of one.
    """

    def read() -> Any:
        plain = [deserialize(value) for value in values]
        return plain[0] if alone else plain

    stored = [reference_in(value) for value in values]
    if any(stored):
        return StoredResult(stored[0] if alone else None, read)
    return read()


@cache
def _bag() -> DBDagBag:
    return create_dag_bag()


def _find(session: Session, submission: Submission) -> DagRun | None:
    return session.scalar(
        select(DagRun).where(DagRun.dag_id == submission.pipeline, DagRun.run_id == submission.run_id).limit(1)
    )


def _unfinished(session: Session, submission: Submission) -> DagRun | None:
    """Lock the run, so that the scheduler keeps away; ``None``: it has ended, or is gone."""
    wanted = select(DagRun).where(DagRun.dag_id == submission.pipeline, DagRun.run_id == submission.run_id)
    run = session.scalar(wanted.with_for_update().limit(1))
    return run if run is not None and run.state in (DagRunState.QUEUED, DagRunState.RUNNING) else None


def _by_a_person(submission: Submission) -> Log:
    """Write what Airflow's own route does: else recovery reads a task that was ended as one that died."""
    return Log(
        event="patch_dag_run",
        task_instance=None,
        owner=BY,
        extra=json.dumps({"state": DagRunMutableStates.FAILED.value, "method": "PATCH"}),
        dag_id=submission.pipeline,
        run_id=submission.run_id,
    )


def _runnable(session: Session, dag_id: str) -> SerializedDAG:
    model = session.scalar(select(DagModel).where(DagModel.dag_id == dag_id, ~DagModel.is_stale).limit(1))
    dag = None if model is None else _bag().get_latest_version_of_dag(dag_id, session=session)
    if model is None or dag is None:
        raise LookupError(f"there is no pipeline {dag_id!r}")
    if model.has_import_errors:
        raise SubmissionRefusedError(f"{dag_id} has import errors and can't be run", "/pipeline")
    if model.allowed_run_types is not None and DagRunType.MANUAL not in model.allowed_run_types:
        raise SubmissionRefusedError(f"{dag_id} does not allow manual runs", "/pipeline")
    return dag


def _check_input(dag: SerializedDAG, given: Mapping[str, Any]) -> None:
    from jsonschema import FormatChecker  # type: ignore[import-untyped]  # its types are a package of their own
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    unknown = sorted(name for name in given if name not in dag.params and name != "aiflow")
    if unknown:
        known = ", ".join(sorted(dag.params)) or "none"
        raise SubmissionRefusedError(
            f"{dag.dag_id} has no parameter {unknown[0]!r}; it has {known}", f"/input/{pointer(unknown[0])}"
        )
    for name in dag.params:
        param = dag.params.get_param(name)
        there = name in given or is_arg_set(param.value)
        if not there:
            raise SubmissionRefusedError(f"{dag.dag_id} needs the parameter {name!r}", f"/input/{pointer(name)}")
        schema = param.schema or {}
        validator = validator_for(schema)(schema, format_checker=FormatChecker())
        for error in validator.iter_errors(given.get(name, param.value)):
            path = "".join("/" + pointer(str(part)) for part in error.absolute_path)
            where = f"/input/{pointer(name)}{path}"
            raise SubmissionRefusedError(f"parameter {name!r} of {dag.dag_id}: {error.message}", where)


def result_task(dag: SerializedDAG) -> str:
    """
    Say whose result is the run's: the task marked by Airflow's ``@result``, else the single leaf.

    Not covered: a DAG that was read where ``airflow_aiflow.policy`` is not installed says of no task that it is marked;
    with several leaves it is refused.

    :param dag: the DAG.
    :raises SubmissionRefusedError: if nothing says so.
    """
    marked = marked_tasks(dag)
    if len(marked) == 1:
        return marked[0]
    leaves = [str(task.task_id) for task in dag.tasks if not task.downstream_task_ids and not task.is_teardown]
    if not marked and len(leaves) == 1:
        return leaves[0]
    found = marked or leaves
    raise SubmissionRefusedError(
        f"{dag.dag_id} has {len(found)} tasks that may give the result ({', '.join(sorted(found))}): mark one by "
        f"Airflow's @result, or let one task come after all of them, and give it",
        "/pipeline",
    )
