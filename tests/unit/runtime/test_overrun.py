"""What becomes of an attempt whose call does not end: its thread can't be interrupted."""

from __future__ import annotations

import contextlib
import threading

import pytest

from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.record import Batch, StepRecord
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime import deadline
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask

CLOCK = SystemClock()

#: Reached only where something is broken.
PATIENCE = 20.0

#: The task at work: what an item captures would count as an argument.
AT_WORK: list[DurableTask] = []


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "OVERRUN_GRACE", 0.1)


@pytest.fixture(name="task")
def _task() -> DurableTask:
    AT_WORK[:] = [DurableTask(clock=CLOCK, settings=FlowSettings(handover=PATIENCE))]
    return AT_WORK[0]


def state_of(task: DurableTask) -> ExecutionState:
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    return standing.state


def hang(item: str) -> str:
    """Go on only when the process would have been ended."""
    assert AT_WORK[0].host.ended.wait(PATIENCE)
    return item


@pytest.mark.parametrize(
    ("may_come_back", "back_in", "state"), [(True, 30.0, ExecutionState.PAUSED), (False, None, ExecutionState.RUNNING)]
)
def test_it_is_handed_back_where_that_is_possible(
    task: DurableTask, may_come_back: bool, back_in: float | None, state: ExecutionState
) -> None:
    task.host.may_come_back = may_come_back
    states: list[ExecutionState] = []

    def body(flow: Flow) -> None:
        flow.map("items", hang, ["one"])
        states.append(state_of(task))

    run_attempt(task.attempt(), task.services, body, step_timeout=0.2)
    assert (task.host.back_in, states) == (back_in, [state])
    assert "did not end within 0.2 s" in task.host.end_reason
    assert any("in hang" in line for line in task.host.warnings)


SHUT = threading.Event()


def item_of_several(which: str) -> str:
    """Be overrun and come back ("slow"), while another one, begun later, is still at work."""
    if which == "slow":
        warnings = AT_WORK[0].host.warnings
        assert CLOCK.wait(PATIENCE, until=lambda: any("nothing new starts" in line for line in warnings))
        SHUT.set()
    elif which == "first":
        CLOCK.wait(0.4)
    else:
        assert SHUT.wait(PATIENCE)
    return which


def test_a_call_that_returns_while_others_are_recorded_leaves_the_attempt_to_its_own_end(task: DurableTask) -> None:
    SHUT.clear()
    items = ["slow", "first", "other"]
    given: list[list[str]] = []

    def body(flow: Flow) -> None:
        given.append(flow.map("items", item_of_several, items, max_workers=2))

    run_attempt(task.attempt(), task.services, body, step_timeout=0.6)
    assert given == [items]
    assert not task.host.ended.is_set()
    assert state_of(task) is ExecutionState.SUCCEEDED


def paid_late(_flow: Flow) -> str:
    """Swallow the deadline of the step around, and come back when that is overrun."""
    warnings = AT_WORK[0].host.warnings
    while not any("nothing new starts" in line for line in warnings):
        with contextlib.suppress(BaseException):
            CLOCK.wait(PATIENCE, until=lambda: any("nothing new starts" in line for line in warnings))
    return "paid"


def test_a_step_inside_the_overrun_one_is_brought_to_its_record(
    task: DurableTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never between a call and its record: the thread is the same, the unit is not."""
    recorded: list[bool] = []
    record = MemoryLedger.record

    def slow_record(self: MemoryLedger, lease: Lease, generation: int, batch: Batch) -> list[StepRecord | None]:
        if any(step.name == "inner" for step in batch.steps):
            # Long enough for the process to be ended in the middle.
            recorded.append(task.host.ended.wait(1.0))
        return record(self, lease, generation, batch)

    monkeypatch.setattr(MemoryLedger, "record", slow_record)

    def body(flow: Flow) -> str:
        def outer(inside: Flow) -> str:
            return inside.step("inner", paid_late, inside)

        return flow.step("outer", outer, flow, timeout=0.2)

    assert run_attempt(task.attempt(), task.services, body) == "paid"
    assert recorded == [False]
    assert not task.host.ended.is_set()
