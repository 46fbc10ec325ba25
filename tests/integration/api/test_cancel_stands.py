"""A cancelled run is not revived by an attempt that recovery brings back; a retry takes the cancel back."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.exceptions import AttemptCancelled
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.undo_by_person import PersonsUndo, undo_by_person
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from tests.integration.api.conftest import World
from tests.integration.api.test_submission_moves import UNDONE, Task, ask, give_back, pay, state

pytestmark = pytest.mark.timeout(120)


def test_an_attempt_that_begins_after_the_end_of_a_cancelled_run_ends_as_cancelled(world: World) -> None:
    view: dict[str, Any] = world.submit().json()
    task, ran = Task(world, view), list[str]()

    def first(flow: Flow) -> None:
        flow.effect("pay", pay, "a", key="a", compensate=give_back)
        ask(world, view, "cancel")
        raise SystemExit  # killed: no outcome

    def again(flow: Flow) -> str:
        flow.effect("pay", pay, "a", key="a", compensate=give_back)
        flow._session.heartbeat.beat()
        flow.step("more", ran.append, "more", cache_key=1)
        return "done"

    with pytest.raises(SystemExit):
        task.run(first)
    world.runs.runs[view["run_id"]].state = "failed"  # Airflow gave it up
    assert state(world, view) == "cancelled"
    with pytest.raises(AttemptCancelled):  # as recovery clears it
        task.run(again)
    assert (ran, UNDONE, task.state) == ([], ["a"], ExecutionState.CANCELLED)
    assert ask(world, view, "retry").status_code == 200
    assert task.run(again) == "done"
    assert ran == ["more"]


def test_a_person_still_takes_back_an_effect_of_a_cancelled_run(world: World) -> None:
    view: dict[str, Any] = world.submit().json()
    task = Task(world, view)

    def killed(flow: Flow) -> None:
        flow.effect("pay", pay, "a", key="a")
        ask(world, view, "cancel")
        raise SystemExit

    with pytest.raises(SystemExit):
        task.run(killed)
    world.runs.runs[view["run_id"]].state = "failed"
    assert state(world, view) == "cancelled"
    inbox = PostgresInbox.connect(world.dsn)
    number = world.submissions._ask("select number from aiflow.intent", {})[0][0]
    found = inbox.effect_numbered(number)
    assert found is not None
    word = PersonsUndo(number, give_back, by="ann", reason="cancelled")
    assert undo_by_person(task.task.services, found, word).counts
    inbox.close()
    assert UNDONE == ["a"]
