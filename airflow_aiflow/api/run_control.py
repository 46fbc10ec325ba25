"""
Hold a run, let it go, and end it in steps, by Airflow's own tables: its API can only end a run at once.

Each function works in the caller's session with the run's row locked: the scheduler leaves out what is locked, and no
task instance is changed that has moved on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.taskreschedule import TaskReschedule
from airflow.utils.state import State, TaskInstanceState
from sqlalchemy import select, update

from airflow_aiflow.durable.hold import freed, held

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.serialization.definitions.dag import SerializedDAG
    from sqlalchemy.orm import Session

    from airflow_aiflow.durable.submission_ports import Instance

#: Seconds between a task's parking and its coming back: Airflow's late word on the parked process fails a quicker one.
PARKED_SECONDS = 20.0

#: What no worker has begun with.
UNBEGUN = (None, TaskInstanceState.SCHEDULED, TaskInstanceState.QUEUED)


def hold_run(session: Session, run: DagRun) -> None:
    """
    Let nothing more of a run start.

    :param run: locked.
    """
    run.run_after = held(run.run_after)
    session.execute(
        update(TaskInstance)
        .where(
            TaskInstance.dag_id == run.dag_id,
            TaskInstance.run_id == run.run_id,
            TaskInstance.state == TaskInstanceState.SCHEDULED,
        )
        # To be scheduled counts a try: what is taken back has not begun, and none is burnt for it.
        .values(state=None, try_number=TaskInstance.try_number - 1)
        .execution_options(synchronize_session=False)
    )


def release_run(session: Session, run: DagRun, waiting: Collection[Instance]) -> None:
    """
    Let a run go on.

    :param run: locked.
    :param waiting: what parked for the hold and comes back at once.
    """
    run.run_after = freed(run.run_after)
    for ti in _instances(session, run):
        if (ti.task_id, ti.map_index) in waiting:
            _hasten(session, ti)


def stop_run(session: Session, run: DagRun, dag: SerializedDAG, keep: Collection[Instance]) -> tuple[bool, bool]:
    """
    Let nothing more of a run start, and end what is at work but some.

    What has not begun gets the word that Airflow has for what can't run any more: with any other word the run would
    count as a success once the rest has ended. Teardown tasks are left to run, as Airflow does.

    :param run: locked.
    :param dag: the run's.
    :param keep: what ends by itself; where it is parked or waits for its next try it comes back at once.
    :return: whether any of ``keep`` is still to end, and whether anything was changed.
    """
    run.run_after = freed(run.run_after)
    going, changed = False, False
    for ti in _instances(session, run):
        if ti.state in State.finished or (dag.has_task(ti.task_id) and dag.get_task(ti.task_id).is_teardown):
            continue
        if (ti.task_id, ti.map_index) in keep and _comes_by_itself(session, ti):
            going = True
        else:
            word = TaskInstanceState.UPSTREAM_FAILED if ti.state in UNBEGUN else TaskInstanceState.FAILED
            changed = _move(session, ti, word) or changed
    return going, changed


def _instances(session: Session, run: DagRun) -> list[TaskInstance]:
    wanted = select(TaskInstance).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id)
    return list(session.scalars(wanted))


def _comes_by_itself(session: Session, ti: TaskInstance) -> bool:
    """Bring a task instance back, where it waits for nobody but a moment."""
    if ti.state == TaskInstanceState.UP_FOR_RESCHEDULE:
        _hasten(session, ti)
    elif ti.state == TaskInstanceState.UP_FOR_RETRY:
        # The next try is prepared; without this word the scheduler does not wait for its moment.
        _move(session, ti, None)
    return ti.state not in (TaskInstanceState.AWAITING_INPUT, TaskInstanceState.DEFERRED)


def _hasten(session: Session, ti: TaskInstance) -> None:
    last = session.scalar(TaskReschedule.stmt_for_task_instance(ti, descending=True).limit(1))
    if last is not None:
        soon = max(datetime.now(UTC), last.end_date + timedelta(seconds=PARKED_SECONDS))
        last.reschedule_date = min(last.reschedule_date, soon)


def _move(session: Session, ti: TaskInstance, state: TaskInstanceState | None) -> bool:
    same = TaskInstance.state.is_(None) if ti.state is None else TaskInstance.state == ti.state
    values = {"state": state, "end_date": datetime.now(UTC)} if state in State.finished else {"state": state}
    moved: Any = session.execute(
        update(TaskInstance)
        .where(TaskInstance.id == ti.id, same)
        .values(values)
        .execution_options(synchronize_session=False)
    )
    return bool(moved.rowcount)
