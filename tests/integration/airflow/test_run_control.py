"""Hold, let go and stop a run in Airflow's own tables, and what its scheduler makes of that."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from airflow_aiflow.durable.hold import is_held
from airflow_aiflow.durable.submission import Submission, SubmissionState
from tests.integration.airflow.conftest import Airflow

DAG = """
from airflow.sdk import dag, task

@dag(schedule=None)
def controlled():
    @task
    def first(): ...

    @task
    def side(number): ...

    @task
    def after(done): ...

    after([first(), side.expand(number=[0, 1])])

controlled()
"""


class World:
    """A run that Airflow's scheduler looks at when the test says so."""

    def __init__(self) -> None:
        from airflow_aiflow.api.airflow_runs import AirflowRuns

        self.runs = AirflowRuns()
        self.submission = Submission(
            submission_id=uuid4(),
            user="ann",
            pipeline="controlled",
            run_id=f"aiflow__{uuid4().hex}",
            key="k",
            window=1,
            fingerprint=bytes(32),
            input={},
            labels={},
            priority=0,
            state=SubmissionState.QUEUED,
            created_at=datetime.now(UTC),
            made=True,
        )
        self.runs.make(self.submission)
        self._due_a_minute_ago()

    def _due_a_minute_ago(self) -> None:
        """SQLite's clock has whole seconds: what is due now is due in the next one there."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            run = session.scalars(select(DagRun).where(DagRun.run_id == self.submission.run_id)).one()
            run.run_after -= timedelta(minutes=1)

    def schedule(self) -> None:
        """Let the scheduler look once: at queued runs, and at what can run in running ones."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState

        with create_session() as session:
            for run in DagRun.get_queued_dag_runs_to_set_running(session=session):
                if run.run_id == self.submission.run_id:
                    run.state = DagRunState.RUNNING
        with create_session() as session:
            for run in DagRun.get_running_dag_runs_to_examine(session=session):
                if run.run_id == self.submission.run_id:
                    run.dag = self.dag(session, run)
                    ready, _ = run.update_state(session=session)
                    run.schedule_tis(ready, session=session)

    def dag(self, session: Any, run: Any) -> Any:
        from airflow_aiflow.api.airflow_runs import _bag

        return _bag().get_dag_for_run(run, session=session)

    def set(self, **states: str | None) -> None:
        """Set states as workers would: ``side_1`` is the second of its mapped instances."""
        from airflow.utils.session import create_session

        with create_session() as session:
            for ti in self._instances(session):
                name = ti.task_id if ti.map_index < 0 else f"{ti.task_id}_{ti.map_index}"
                if name in states:
                    ti.state = states[name]

    @property
    def states(self) -> dict[str, str | None]:
        from airflow.utils.session import create_session

        with create_session() as session:
            return {
                ti.task_id if ti.map_index < 0 else f"{ti.task_id}_{ti.map_index}": ti.state
                for ti in self._instances(session)
            }

    @property
    def tries(self) -> dict[str, int]:
        from airflow.utils.session import create_session

        with create_session() as session:
            return {ti.task_id: ti.try_number for ti in self._instances(session) if ti.map_index < 0}

    def _instances(self, session: Any) -> list[Any]:
        from airflow.models.taskinstance import TaskInstance
        from sqlalchemy import select

        return list(session.scalars(select(TaskInstance).where(TaskInstance.run_id == self.submission.run_id)))

    def run(self) -> Any:
        found = self.runs.look(self.submission)
        assert found is not None
        return found

    def failed_once(self, *, ago: float) -> None:
        """Let the first task wait for its next try."""
        from airflow.utils.session import create_session

        with create_session() as session:
            [first] = [ti for ti in self._instances(session) if ti.task_id == "first"]
            first.state, first.end_date = "up_for_retry", datetime.now(UTC) - timedelta(seconds=ago)

    def parked(self, *, back_in: float, ago: float) -> None:
        """Park the first task as a reschedule does."""
        from airflow.models.taskreschedule import TaskReschedule
        from airflow.utils.session import create_session

        now = datetime.now(UTC)
        with create_session() as session:
            [first] = [ti for ti in self._instances(session) if ti.task_id == "first"]
            began = now - timedelta(seconds=ago + 1)
            ended = now - timedelta(seconds=ago)
            session.add(TaskReschedule(first.id, began, ended, ended + timedelta(seconds=back_in)))
            first.state = "up_for_reschedule"

    def back_in(self) -> float:
        """Say in how many seconds it comes back."""
        from airflow.models.taskreschedule import TaskReschedule
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            [first] = [ti for ti in self._instances(session) if ti.task_id == "first"]
            row = session.scalars(select(TaskReschedule).where(TaskReschedule.ti_id == first.id)).one()
            return float((row.reschedule_date - datetime.now(UTC)).total_seconds())


@pytest.fixture
def world(airflow: Airflow) -> Iterator[World]:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    file = airflow.home / "dags" / "controlled.py"
    file.write_text(textwrap.dedent(DAG))
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(dag_folder=str(file))
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.get(DagModel, "controlled")
        assert found is not None
        found.is_paused = False
    yield World()
    file.unlink()


def test_of_a_held_run_nothing_starts_and_what_is_scheduled_is_not_queued(world: World) -> None:
    world.runs.hold(world.submission)
    world.schedule()
    assert (world.run().state, world.run().held) == ("queued", True)
    world.runs.release(world.submission, [])
    world.schedule()
    assert (world.run().state, world.run().held) == ("running", False)
    assert world.states["first"] == "scheduled"
    for _ in range(2):
        world.runs.hold(world.submission)
    assert world.states["first"] is None
    world.schedule()
    assert world.states["first"] is None
    assert world.runs.look_many([world.submission])["controlled", world.submission.run_id] == world.run()
    for _ in range(2):
        world.runs.release(world.submission, [])
    world.schedule()
    assert world.states["first"] == "scheduled"


@pytest.mark.parametrize(("before", "number"), [("new", 1), ("retry", 2), ("parked", 1)])
def test_no_try_is_burnt_for_a_hold(world: World, before: str, number: int) -> None:
    world.schedule()
    world.schedule()
    if before == "retry":
        world.failed_once(ago=3600)
    elif before == "parked":
        world.parked(back_in=1, ago=60)
    world.schedule()
    tries = world.tries
    assert (world.states["first"], tries["first"]) == ("scheduled", number)
    for _ in range(2):
        world.runs.hold(world.submission)
        world.runs.release(world.submission, [])
        world.schedule()
    assert (world.states["first"], world.tries) == ("scheduled", tries)


def test_the_true_moment_comes_back_exactly(world: World) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    def moment() -> datetime:
        with create_session() as session:
            found = session.scalar(select(DagRun.run_after).where(DagRun.run_id == world.submission.run_id))
            assert found is not None
            return found

    before = moment()
    world.runs.hold(world.submission)
    assert is_held(moment())
    world.runs.release(world.submission, [])
    assert moment() == before
    world.runs.hold(world.submission)
    world.runs.end(world.submission)
    assert moment() == before


def test_what_parked_comes_back_at_once_and_not_too_soon(world: World) -> None:
    world.schedule()
    world.parked(back_in=300, ago=60)
    world.runs.release(world.submission, [])
    assert world.back_in() > 200, "it waits for something else"
    world.runs.release(world.submission, [("first", -1)])
    assert world.back_in() <= 0
    world.schedule()
    assert world.states["first"] == "scheduled"
    other = World()
    other.schedule()
    other.parked(back_in=300, ago=5)
    other.runs.release(other.submission, [("first", -1)])
    assert 10 < other.back_in() <= 15


def test_a_stopped_run_keeps_what_ends_by_itself_and_has_then_failed(world: World) -> None:
    world.schedule()
    world.set(first="running", side_0="running", side_1="queued")
    world.runs.hold(world.submission)
    assert world.runs.stop(world.submission, [("first", -1)])
    assert world.states == {
        "first": "running",
        "side_0": "failed",
        "side_1": "upstream_failed",
        "after": "upstream_failed",
    }
    assert not world.run().held
    world.schedule()
    assert world.run().state == "running"
    assert world.runs.stop(world.submission, [("first", -1)]), "twice is once"
    world.set(first="failed")
    assert not world.runs.stop(world.submission, [("first", -1)])
    world.schedule()
    assert world.run().state == "failed"


def test_what_ends_well_leaves_no_success_behind(world: World) -> None:
    """A run whose leaves were only skipped would count as one."""
    world.schedule()
    world.set(first="running", side_0="success", side_1="success")
    assert world.runs.stop(world.submission, [("first", -1)])
    world.set(first="success")
    world.schedule()
    assert world.run().state == "failed"


@pytest.mark.parametrize(
    ("state", "kept", "then"),
    [
        ("up_for_retry", True, "scheduled"),
        ("awaiting_input", False, "failed"),
        ("deferred", False, "failed"),
        (None, True, "scheduled"),
    ],
)
def test_what_waits_for_a_moment_comes_back_and_what_waits_for_somebody_does_not(
    world: World, state: str | None, kept: bool, then: str
) -> None:
    world.schedule()
    world.set(first=state)
    assert world.runs.stop(world.submission, [("first", -1)]) is kept
    world.schedule()
    assert world.states["first"] == then


def test_a_run_that_was_ended_is_stopped_and_held_no_more_and_comes_back_whole(world: World) -> None:
    world.schedule()
    world.set(first="running", side_0="success", side_1="success")
    world.runs.stop(world.submission, [("first", -1)])
    world.runs.end(world.submission)
    assert world.run().state == "failed"
    assert not world.runs.stop(world.submission, [("first", -1)])
    world.runs.hold(world.submission)
    assert not world.run().held
    assert world.runs.again(world.submission, only_failed=True)
    assert world.states == {"first": None, "side_0": "success", "side_1": "success", "after": None}
    world.schedule()
    assert (world.run().state, world.states["first"]) == ("running", "scheduled")


def test_a_stop_stands_in_the_audit_log_as_a_persons_word(world: World) -> None:
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    world.schedule()
    for _ in range(3):
        world.runs.stop(world.submission, [("first", -1)])
    with create_session() as session:
        wanted = select(func.count()).where(Log.run_id == world.submission.run_id, Log.event == "patch_dag_run")
        assert session.scalar(wanted) == 1
