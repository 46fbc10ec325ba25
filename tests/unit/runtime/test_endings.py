"""How attempts end: swallowed signals, forks, superseding in the middle of things, places given back."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

import pytest

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AttemptParked,
    AttemptSuperseded,
    EffectNotAppliedError,
    FlowClosedError,
    FlowError,
    FlowOptionError,
)
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock, ScriptedModels, flow

RAN: list[object] = []

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def work(n: object) -> object:
    RAN.append(n)
    return n


def later(to: str) -> str:
    RAN.append(to)
    if len(RAN) == 1:
        raise EffectNotAppliedError("busy", retry_after=600)
    return "sent"


def state_of(task: DurableTask) -> ExecutionState:
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    return standing.state


def swallow_all(call: Callable[[], object]) -> None:
    with contextlib.suppress(BaseException):
        call()


def test_a_parked_effect_that_a_bare_except_swallows_does_not_vanish() -> None:
    """Else the task would succeed without the effect."""
    task = DurableTask()

    def body(f: Flow) -> str:
        swallow_all(lambda: f.effect("mail", later, "a", key="k"))
        with pytest.raises(FlowClosedError, match="is parked"):
            f.step("next", work, "must not run")
        return "done"

    with pytest.raises(AttemptParked):
        task.run(body)
    assert state_of(task) is ExecutionState.PAUSED
    task.same_again()
    assert task.run(lambda f: f.effect("mail", later, "a", key="k")) == "sent"
    assert RAN == ["a", "a"]


def test_a_parked_effect_is_parked_whatever_is_raised_after_it() -> None:
    task = DurableTask()

    def body(f: Flow) -> None:
        swallow_all(lambda: f.effect("mail", later, "a", key="k"))
        raise ValueError("the author's own")

    with pytest.raises(AttemptParked) as caught:
        task.run(body)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_with_block_whose_flow_is_parked_ends_parked() -> None:
    task = DurableTask()
    with pytest.raises(AttemptParked), open_flow(task.attempt(), task.services) as f:
        swallow_all(lambda: f.effect("mail", later, "a", key="k"))


def test_a_step_that_swallowed_the_end_of_its_attempt_records_no_wrong_result() -> None:
    """Its inner call was refused; what the code made of that must not be replayed as the result."""
    task = DurableTask(settings=FlowSettings(handover=0.001))
    took_over: list[bool] = []

    def careless() -> object:
        f = current_flow()
        f.step("first", work, 1)
        if not took_over:
            took_over.append(True)
            task.run(lambda g: None)
        value: object = None
        swallow_all(lambda: f.effect("pay", work, "x", key="k"))
        with contextlib.suppress(BaseException):
            value = f.step("second", work, 2)
        return value

    with pytest.raises(AttemptSuperseded):
        task.run(lambda f: f.step("outer", careless, cache_key=1))
    assert task.run(lambda f: f.step("outer", careless, cache_key=1)) == 2
    assert RAN == [1, "x", 2]


def test_superseding_between_intent_and_call_leaves_no_doubt() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    task = DurableTask(ledger=ledger, clock=clock)
    real, first = ledger.intend, iter([True])
    flows: list[Flow] = []

    def wanted_meanwhile(lease: object, intent: object) -> object:
        answer = real(lease, intent)  # type: ignore[arg-type]
        if next(first, False):
            flows[0]._session.gate.supersede("a later attempt waits")
        return answer

    ledger.intend = wanted_meanwhile  # type: ignore[method-assign, assignment]

    def body(f: Flow) -> object:
        flows.append(f)
        return f.effect("mail", work, "a", key="k", on_in_doubt="hold")

    with pytest.raises(AttemptSuperseded):
        task.run(body)
    assert RAN == []
    assert task.run(body) == "a"


FLOWS: list[Flow] = []
IN_HAND = threading.Event()


def until_superseded(n: int) -> int:
    RAN.append(n)
    if n == 0:
        IN_HAND.set()
        assert SystemClock().wait(PATIENCE, until=lambda: bool(FLOWS[0]._session.gate.superseded))
    return n


def test_superseding_in_the_middle_of_a_map_starts_no_item_and_keeps_what_is_in_hand() -> None:
    clock = SystemClock()
    settings = FlowSettings(lease=LeaseRules(ttl=0.5, interval=0.05), handover=PATIENCE)
    task = DurableTask(clock=clock, settings=settings)
    results: list[object] = []
    FLOWS.clear()
    IN_HAND.clear()

    def first(f: Flow) -> object:
        FLOWS.append(f)
        return f.map("m", until_superseded, range(30), max_workers=1)

    def newcomer() -> None:
        assert IN_HAND.wait(PATIENCE)
        results.append(task.run(lambda f: f.map("m", until_superseded, range(30), max_workers=1)))

    thread = threading.Thread(target=newcomer)
    thread.start()
    with pytest.raises(AttemptSuperseded):
        task.run(first)
    thread.join(PATIENCE)
    assert results == [list(range(30))]
    assert sorted(map(int, map(str, RAN))) == list(range(30))


def test_a_forked_child_may_not_use_the_flow_nor_end_it() -> None:
    task = DurableTask(clock=SystemClock())

    def body(f: Flow) -> str:
        f.step("before", work, 1)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            said = b"nothing"
            try:
                f.step("inside", work, 2)
            except FlowError:
                said = b"refused"
            os.write(writer, said)
            raise SystemExit
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"refused"
        os.waitpid(child, 0)
        f.step("after", work, 3)
        return "done"

    parent = os.getpid()
    try:
        assert task.run(body) == "done"
    except SystemExit:
        assert os.getpid() != parent
        # The child came out of the task: what it may not have done is to end the attempt.
        os._exit(0 if state_of(task) is ExecutionState.RUNNING else 3)
    assert state_of(task) is ExecutionState.SUCCEEDED


def test_a_retried_body_finds_what_its_first_try_paid_for() -> None:
    models = ScriptedModels()
    task = DurableTask(models=models)

    def body() -> str:
        answer: str = current_flow().llm("ask", "one")
        RAN.append("try")
        if len(RAN) < 3:
            raise ValueError("not yet")
        return answer

    assert task.run(lambda f: f.step("outer", body, cache_key=1, retries=3)) == "answer to: one"
    assert len(models.requests) == 1


def test_a_failed_step_that_is_called_again_finds_what_it_paid_for() -> None:
    models = ScriptedModels()
    task = DurableTask(models=models)

    def item(n: int) -> str:
        a: str = current_flow().llm("ask", f"question {n}")
        RAN.append(n)
        if RAN.count(n) == 1:
            raise ValueError("once")
        return a

    def outer() -> list[str]:
        return current_flow().map("m", item, [1, 2], max_workers=1)

    def body(f: Flow) -> list[str]:
        for _ in range(3):
            with contextlib.suppress(ValueError):
                return f.step("outer", outer, cache_key=1)
        raise AssertionError("never")

    expected = ["answer to: question 1", "answer to: question 2"]
    assert task.run(body) == expected
    assert len(models.requests) == 2
    assert task.run(body) == expected
    assert len(models.requests) == 2


def test_items_that_never_began_give_their_places_back() -> None:
    task = DurableTask()

    def fragile(n: int) -> int:
        RAN.append(n)
        if RAN == [0]:
            raise ValueError("first")
        return n

    def body(f: Flow) -> list[int]:
        try:
            return f.map("m", fragile, range(6), max_workers=1, item_key=str)
        except ValueError:
            return f.map("m", fragile, range(6), max_workers=1, item_key=str)

    assert task.run(body) == list(range(6))
    assert task.run(body) == list(range(6))
    assert [0, *range(6)] == RAN


BARRIER = threading.Barrier(2)
FAILING = [True]


def equal(n: int) -> int:
    if FAILING:
        BARRIER.wait(PATIENCE)
        with contextlib.suppress(IndexError):
            FAILING.pop()
            raise ValueError("one of two")
    RAN.append(n)
    return n


def test_equal_calls_of_which_one_fails_in_parallel_pay_for_no_more_than_is_missing() -> None:
    FAILING[:] = [True]
    task = DurableTask()
    with pytest.raises(ValueError, match="one of two"):
        task.run(lambda f: f.map("m", equal, [7, 7], max_workers=2))
    assert RAN == [7]
    assert task.run(lambda f: f.map("m", equal, [7, 7], max_workers=2)) == [7, 7]
    assert RAN == [7, 7]


@pytest.mark.parametrize("key", [5, None, "", "a\ud800"])
def test_an_item_key_that_is_no_text_is_refused_before_the_item_runs(key: object) -> None:
    with flow() as f, pytest.raises(FlowOptionError, match="item_key"):
        f.map("m", work, [1], item_key=lambda _item: key)  # type: ignore[arg-type, return-value]
    assert RAN == []


@pytest.mark.parametrize("retries", [-1, 1.5, True, None])
def test_wrong_retries_of_a_step_are_refused_before_it_runs(retries: object) -> None:
    with flow() as f, pytest.raises(FlowOptionError, match="retries"):
        f.step("s", work, 1, retries=retries)  # type: ignore[arg-type]
    assert RAN == []


def exits(n: int) -> int:
    raise (SystemExit if n == 1 else KeyboardInterrupt)


@pytest.mark.parametrize(("item", "raised"), [(1, SystemExit), (2, KeyboardInterrupt)])
def test_an_exit_inside_a_worker_reaches_the_task(item: int, raised: type[BaseException]) -> None:
    task = DurableTask()
    with pytest.raises(raised):
        task.run(lambda f: f.map("m", exits, [item]))
    with pytest.raises(raised):
        task.run(lambda f: f.effect("e", exits, item, key="k", on_in_doubt="hold"))
    assert state_of(task) is ExecutionState.RUNNING  # the process was told to end; nothing failed


def test_a_flow_works_from_a_plain_thread() -> None:
    task = DurableTask()

    def body(f: Flow) -> list[object]:
        got: list[object] = []
        threads = [threading.Thread(target=lambda n=n: got.append(f.step("s", work, n, timeout=5))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        return sorted(got, key=str)

    assert task.run(body) == task.run(body) == list(range(8))
    assert len(RAN) == 8


def test_an_effect_in_a_step_and_a_step_in_an_effect() -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.step("outer", effect_in_step, 1), f.effect("both", step_in_effect, 2, key="k2")

    assert task.run(body) == task.run(body) == (1, 2)
    assert RAN == [1, 2]


def effect_in_step(n: int) -> object:
    return current_flow().effect("pay", work, n, key="k1")


def step_in_effect(n: int) -> object:
    return current_flow().step("read", work, n)


def test_the_watchdog_gives_a_unit_in_hand_its_own_timeout_and_the_time_to_record() -> None:
    """Else an effect that may take an hour would be cut after the hand-over's two minutes, and be in doubt."""
    with flow() as f:
        session = f._session
        now = session.services.clock.monotonic()
        assert session.heartbeat._patient_until(now) == now + 120
        with session.gate.hand("quick"), session.gate.hand("slow", 3600):
            assert session.heartbeat._patient_until(now) == now + 3610
        assert session.heartbeat._patient_until(now) == now + 120
