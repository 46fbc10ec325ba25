"""``on_kill`` in a task process: the word reaches the attempt, and Airflow gets a reschedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.hooks.context import Work
from airflow_aiflow.hooks.host import AirflowHost
from airflow_aiflow.runtime.attempt_run import HAND_OVER_SECONDS
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask


def work_of(task: DurableTask) -> Work:
    return Work(task.attempt(), task.services, AirflowHost())


def test_a_task_that_is_told_to_end_is_handed_back_as_a_reschedule() -> None:
    """With less than 20 s the executor's late word on the old process would fail the new one."""
    task = DurableTask(settings=FlowSettings(reschedule_delay=1))
    work = work_of(task)

    def body(flow: Flow) -> Any:
        for _ in range(2):
            work.on_kill()
        return flow.step("never", str, 1)

    before = datetime.now(UTC)
    with pytest.raises(AirflowRescheduleException) as told:
        work.run(body)
    assert told.value.reschedule_date >= before + timedelta(seconds=HAND_OVER_SECONDS)
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    assert standing.state is ExecutionState.PAUSED


def test_the_word_may_come_before_the_attempt_begins() -> None:
    task = DurableTask()
    work = work_of(task)
    work.on_kill()
    with pytest.raises(AirflowRescheduleException):
        work.run(lambda flow: flow.step("never", str, 1))
    assert task.ledger.standing(task.execution) is None
