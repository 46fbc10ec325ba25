"""SIGTERM: what is in hand ends and is recorded, nothing new starts, the slot goes back."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptParked, EffectInDoubtError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.shutdown import Shutdown
from airflow_aiflow.runtime.takeover import take_over
from airflow_aiflow.testing import DurableTask

pytestmark = pytest.mark.timeout(60)

RAN: list[object] = []

PATIENCE = 30.0

#: Never set: to let a moment pass.
MOMENT = threading.Event()


class Killed:
    """What ``on_kill`` does, behind Airflow's handler for SIGTERM: it raises nothing."""

    def __init__(self) -> None:
        self.shutdown = Shutdown()
        self.calls = 0
        self._before = signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, _number: int, _frame: object) -> None:
        self.calls += 1
        self.shutdown.ask()

    def close(self) -> None:
        signal.signal(signal.SIGTERM, self._before)


@pytest.fixture
def killed() -> Iterator[Killed]:
    RAN.clear()
    killed = Killed()
    yield killed
    killed.close()


def task(grace: float = PATIENCE, **options: Any) -> DurableTask:
    return DurableTask(clock=SystemClock(), settings=FlowSettings(shutdown_grace=grace), **options)


def run(durable: DurableTask, body: Callable[[Flow], Any], killed: Killed) -> Any:
    attempt = durable.attempt()
    durable.retried()
    return run_attempt(attempt, durable.services, body, shutdown=killed.shutdown)


def standing(durable: DurableTask) -> Any:
    found = durable.ledger.standing(durable.execution)
    assert found is not None
    return found


def term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def twice() -> None:
    """A pod's end reaches a task twice: by its supervisor, and by itself."""
    term()
    MOMENT.wait(0.02)
    term()
    MOMENT.wait(0.02)


def work(name: str) -> str:
    RAN.append(name)
    return name


def told(name: str) -> str:
    twice()
    return work(name)


def test_the_unit_in_hand_is_recorded_and_nothing_new_starts(killed: Killed) -> None:
    durable = task()

    def body(f: Flow) -> list[str]:
        return [f.step("a", told, "a"), f.step("b", work, "b")]

    with pytest.raises(AttemptParked) as parked:
        run(durable, body, killed)
    assert (parked.value.delay, parked.value.why) == (30.0, "this process is told to end")
    assert RAN == ["a"]
    assert killed.calls == 2
    assert standing(durable).state is ExecutionState.PAUSED
    assert standing(durable).lease_left <= 0, "the next attempt waits for nobody"
    killed.shutdown = Shutdown()
    assert run(durable, body, killed) == ["a", "b"]
    assert RAN == ["a", "b"]


class Models:
    """A model during whose call the process is told to end, twice."""

    calls = 0

    def call(self, request: LlmRequest) -> LlmAnswer:
        self.calls += 1
        twice()
        return LlmAnswer("paid", Usage(model="m", response_id="r", tokens_in=1, tokens_out=1))

    def close(self) -> None:
        """Hold nothing."""


def test_a_model_call_in_flight_is_paid_once(killed: Killed) -> None:
    models = Models()
    durable = task(models=models)

    def body(f: Flow) -> str:
        answer = f.llm("ask", "What?")
        f.effect("send", work, answer, key="k", on_in_doubt="hold")
        return str(answer)

    with pytest.raises(AttemptParked):
        run(durable, body, killed)
    killed.shutdown = Shutdown()
    assert run(durable, body, killed) == "paid"
    assert models.calls == 1
    assert RAN == ["paid"]


def test_a_body_that_only_returns_succeeds(killed: Killed) -> None:
    durable = task()
    assert run(durable, lambda f: f.step("a", told, "a"), killed) == "a"
    assert standing(durable).state is ExecutionState.SUCCEEDED


def test_an_attempt_that_swallows_the_word_is_parked_all_the_same(killed: Killed) -> None:
    durable = task()

    def body(f: Flow) -> str:
        f.step("a", told, "a")
        try:
            f.step("b", work, "b")
        except BaseException:
            return "never mind"
        return "all done"

    with pytest.raises(AttemptParked):
        run(durable, body, killed)
    assert standing(durable).state is ExecutionState.PAUSED


def slow(name: str) -> str:
    term()
    MOMENT.wait(PATIENCE)
    return work(name)


def test_a_step_that_does_not_end_in_time_is_not_recorded(killed: Killed) -> None:
    durable = task(grace=0.1)
    with pytest.raises(AttemptParked):
        run(durable, lambda f: f.step("a", slow, "a"), killed)
    assert standing(durable).state is ExecutionState.PAUSED
    killed.shutdown = Shutdown()
    assert run(durable, lambda f: f.step("a", slow, "a") if RAN else f.resumed, killed) is False


def swallows(name: str) -> str:
    try:
        return slow(name)
    except BaseException:
        return "half"


def test_what_code_makes_of_being_cut_off_is_no_result(killed: Killed) -> None:
    durable = task(grace=0.1)
    with pytest.raises(AttemptParked):
        run(durable, lambda f: f.step("a", swallows, "a"), killed)
    assert task_steps(durable) == 0


def task_steps(durable: DurableTask) -> int:
    lease = durable.run(lambda f: f._session.replay)
    return len(lease.steps)


def test_an_effect_that_does_not_end_in_time_is_in_doubt(killed: Killed) -> None:
    durable = task(grace=0.1)

    def body(f: Flow) -> str:
        return f.effect("send", slow, "a", key="k", on_in_doubt="hold")

    with pytest.raises(AttemptParked):
        run(durable, body, killed)
    killed.shutdown = Shutdown()
    with pytest.raises(EffectInDoubtError):
        run(durable, body, killed)
    assert RAN == []


def test_an_effect_that_has_just_returned_is_recorded(killed: Killed) -> None:
    """C11: SIGTERM 5 ms after the effect returned."""
    durable = task(grace=0.001)

    def body(f: Flow) -> list[str]:
        sent = f.effect("send", soon, "a", key="k", on_in_doubt="hold")
        while not killed.calls:
            MOMENT.wait(0.001)
        return [sent, f.step("b", work, "b")]

    with pytest.raises(AttemptParked):
        run(durable, body, killed)
    killed.shutdown = Shutdown()
    assert run(durable, body, killed) == ["a", "b"]
    assert RAN == ["a", "b"]


def soon(name: str) -> str:
    timer = threading.Timer(0.005, term)
    timer.daemon = True
    timer.start()
    return work(name)


def test_code_between_units_is_left_after_the_grace(killed: Killed) -> None:
    durable = task(grace=0.1)

    def body(f: Flow) -> None:
        f.step("a", told, "a")
        MOMENT.wait(PATIENCE)

    with pytest.raises(AttemptParked):
        run(durable, body, killed)
    assert standing(durable).state is ExecutionState.PAUSED


class Hold:
    """Where items wait for the test."""

    reached: threading.Barrier
    go: threading.Event


def held_item(number: int) -> int:
    if number < 2:
        Hold.reached.wait(PATIENCE)
        Hold.go.wait(PATIENCE)
    RAN.append(number)
    return number


def stuck_item(number: int) -> int:
    term()
    Hold.go.wait(PATIENCE)
    return number


def test_a_map_ends_what_is_in_hand_and_starts_no_item(killed: Killed) -> None:
    durable = task()
    Hold.reached, Hold.go = threading.Barrier(3), threading.Event()

    def tell() -> None:
        Hold.reached.wait(PATIENCE)
        term()
        while not killed.shutdown.asked:
            MOMENT.wait(0.01)
        Hold.go.set()

    def body(f: Flow) -> list[int]:
        return f.map("items", held_item, range(8), max_workers=2)

    threading.Thread(target=tell, daemon=True).start()
    with pytest.raises(AttemptParked):
        run(durable, body, killed)
    assert sorted(map(str, RAN)) == ["0", "1"]
    killed.shutdown = Shutdown()
    assert run(durable, body, killed) == list(range(8))
    assert sorted(map(str, RAN)) == list("01234567"), "none ran twice"


def test_a_map_whose_items_do_not_end_is_left(killed: Killed) -> None:
    durable = task(grace=0.1)
    Hold.go = threading.Event()
    try:
        with pytest.raises(AttemptParked):
            run(durable, lambda f: f.map("items", stuck_item, [1], max_workers=2), killed)
    finally:
        Hold.go.set()
    assert standing(durable).state is ExecutionState.PAUSED


def test_a_process_that_is_told_before_it_began_leaves_the_ledger_alone(killed: Killed) -> None:
    durable = task()
    term()
    with pytest.raises(AttemptParked):
        run(durable, lambda f: f.step("a", work, "a"), killed)
    assert durable.ledger.standing(durable.execution) is None
    assert RAN == []


def test_a_newcomer_that_is_told_waits_for_no_former_attempt(killed: Killed) -> None:
    durable = task()
    take_over(durable.attempt(), durable.ledger, durable.settings, durable.clock, ttl=60)
    durable.retried()
    timer = threading.Timer(0.1, term)
    timer.start()
    began = time.monotonic()
    with pytest.raises(AttemptParked, match="before anything began"):
        run(durable, lambda f: f.step("a", work, "a"), killed)
    timer.join()
    assert time.monotonic() - began < durable.settings.handover / 4
    assert RAN == []


def test_a_word_after_the_end_does_nothing(killed: Killed) -> None:
    durable = task()
    assert run(durable, lambda f: f.step("a", work, "a"), killed) == "a"
    twice()
    assert killed.calls == 2
    assert standing(durable).state is ExecutionState.SUCCEEDED


def test_a_pause_inside_an_effect_is_not_slept_through(killed: Killed) -> None:
    durable = task()

    def refused(name: str) -> str:
        RAN.append(name)
        term()
        raise ConnectionRefusedError(name)

    began = time.monotonic()
    with pytest.raises(AttemptParked):
        run(durable, lambda f: f.effect("send", refused, "a", key="k", retries=1), killed)
    assert time.monotonic() - began < 0.9
    assert RAN == ["a"]
