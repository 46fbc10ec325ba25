"""A person holds or cancels the run: an attempt ends between steps, and takes back what it is asked to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.execution import Asked, ExecutionState
from airflow_aiflow.exceptions import AttemptCancelled, AttemptParked
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask

pytestmark = pytest.mark.timeout(60)


#: What ran, and whose effects were taken back: an effect's function is one of a module.
RAN: list[str] = []
UNDONE: list[str] = []

#: Called inside the next effect, and inside each undo.
INSIDE: list[Callable[[], None]] = []
INSIDE_UNDO: list[Callable[[], None]] = []
ASKED = threading.Event()


def pay(name: str) -> str:
    while INSIDE:
        INSIDE.pop()()
    RAN.append(name)
    return name


def give_back(intent: Any, _result: Any) -> None:
    for each in INSIDE_UNDO:
        each()
    UNDONE.append(intent.key)


class World:
    """A task whose run is wished something of in the middle of a step; each wish comes with a beat."""

    def __init__(self, **options: Any) -> None:
        self.task = DurableTask(**options)
        self.ran, self.undone = RAN, UNDONE
        for each in (RAN, UNDONE, INSIDE, INSIDE_UNDO):
            each.clear()

    def wish(self, flow: Flow, asked: Asked | None) -> None:
        self.wish_before(asked)
        flow._session.heartbeat.beat()

    def wish_before(self, asked: Asked | None) -> None:
        assert isinstance(self.task.ledger, MemoryLedger)
        self.task.ledger.ask_run("dag", "run", asked)

    def work(self, name: str) -> str:
        self.ran.append(name)
        return name

    def paid(self, flow: Flow, name: str) -> str:
        return flow.effect("pay", pay, name, key=name, compensate=give_back, identity="key")

    @property
    def state(self) -> ExecutionState:
        found = self.task.ledger.standing(self.task.execution)
        assert found is not None
        assert found.lease_left <= 0, "it has let go"
        return found.state

    def effect(self, key: str) -> EffectState:
        [effect] = {one for one in self.task.ledger._tables.effects if one.key == key and one.name == "pay"}  # type: ignore[attr-defined]
        found = self.task.ledger.effect(effect)
        assert found is not None
        return found.state


def told_inside(world: World, flow: Flow, asked: Asked) -> str:
    def step() -> str:
        world.wish(flow, asked)
        return world.work("told")

    return flow.step("told", step, cache_key="told")


def test_a_held_run_parks_at_the_next_step_and_goes_on_where_it_was() -> None:
    world = World()

    def body(flow: Flow) -> list[str]:
        return [told_inside(world, flow, "hold"), flow.step("after", world.work, "after", cache_key="after")]

    with pytest.raises(AttemptParked) as parked:
        world.task.run(body)
    assert (parked.value.delay, parked.value.why) == (30.0, "the run is held by a person")
    assert (world.ran, world.state) == (["told"], ExecutionState.PAUSED)
    world.task.same_again()
    with pytest.raises(AttemptParked):
        world.task.run(body)  # still held: it was called all the same
    assert world.ran == ["told"]
    world.wish_before(None)
    world.task.same_again()
    assert world.task.run(body) == ["told", "after"]
    assert world.ran == ["told", "after"]


def test_a_hold_that_is_taken_back_before_the_next_step_stops_nothing() -> None:
    world = World()

    def body(flow: Flow) -> str:
        told_inside(world, flow, "hold")
        world.wish(flow, None)
        return flow.step("after", world.work, "after", cache_key="after")

    assert world.task.run(body) == "after"


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_cancelled_attempt_ends_between_steps_and_takes_back_the_last_first(swallowed: bool) -> None:
    world = World(compensate_on_failure=True, retries=3)

    def body(flow: Flow) -> str:
        world.paid(flow, "first")
        world.paid(flow, "second")
        told_inside(world, flow, "cancel")
        try:
            return world.paid(flow, "third")
        except BaseException:
            if not swallowed:
                raise
            return "all is well"

    with pytest.raises(AttemptCancelled):
        world.task.run(body)
    assert world.ran == ["first", "second", "told"]
    assert world.undone == ["second", "first"]
    assert (world.effect("first"), world.effect("second")) == (EffectState.COMPENSATED, EffectState.COMPENSATED)
    assert world.state is ExecutionState.CANCELLED


def test_who_does_not_ask_for_it_has_nothing_taken_back() -> None:
    world = World(retries=3)

    def body(flow: Flow) -> str:
        world.paid(flow, "first")
        told_inside(world, flow, "cancel")
        return flow.step("after", world.work, "after", cache_key="after")

    with pytest.raises(AttemptCancelled):
        world.task.run(body)
    assert (world.undone, world.state) == ([], ExecutionState.CANCELLED)
    assert world.effect("first") is EffectState.SUCCEEDED


def test_one_that_was_parked_comes_back_to_take_back_what_it_did() -> None:
    """It replays up to what is not recorded, so that it knows how: events and recorded steps stop it nowhere."""
    world = World(compensate_on_failure=True)

    def body(flow: Flow) -> str:
        flow.emit("begins")
        world.paid(flow, "first")
        flow.progress(1, 2)
        told_inside(world, flow, "hold")
        return flow.step("after", world.work, "after", cache_key="after")

    with pytest.raises(AttemptParked):
        world.task.run(body)
    world.wish_before("cancel")
    world.task.same_again()
    with pytest.raises(AttemptCancelled):
        world.task.run(body)
    assert (world.ran, world.undone) == (["first", "told"], ["first"])
    assert world.state is ExecutionState.CANCELLED


def test_a_retry_after_a_cancel_replays_the_steps_and_does_the_effects_once_more() -> None:
    world = World(compensate_on_failure=True)

    def body(flow: Flow) -> str:
        world.paid(flow, "first")
        if world.undone == []:
            told_inside(world, flow, "cancel")
        return flow.step("after", world.work, "after", cache_key="after")

    with pytest.raises(AttemptCancelled):
        world.task.run(body)
    world.wish_before(None)
    world.task.cleared()
    assert world.task.run(body) == "after"
    assert world.ran == ["first", "told", "first", "after"]


def test_an_error_of_the_code_under_a_cancel_is_no_try_to_be_repeated() -> None:
    world = World(compensate_on_failure=True, retries=3)

    def body(flow: Flow) -> None:
        world.paid(flow, "first")
        told_inside(world, flow, "cancel")
        raise ValueError("the author's")

    with pytest.raises(AttemptCancelled):
        world.task.run(body)
    assert (world.undone, world.state) == (["first"], ExecutionState.CANCELLED)


def test_a_wish_that_comes_while_effects_are_taken_back_stops_nothing() -> None:
    world = World(compensate_on_failure=True, retries=0)
    flows: list[Flow] = []

    INSIDE_UNDO.append(lambda: world.wish(flows[0], "cancel"))

    def body(flow: Flow) -> None:
        flows.append(flow)
        world.paid(flow, "first")
        world.paid(flow, "second")
        raise ValueError("the author's")

    with pytest.raises(ValueError, match="author"):
        world.task.run(body)
    assert (world.undone, world.state) == (["second", "first"], ExecutionState.FAILED)


def test_a_body_that_starts_nothing_more_has_succeeded() -> None:
    world = World()
    assert world.task.run(lambda flow: told_inside(world, flow, "cancel")) == "told"
    assert world.state is ExecutionState.SUCCEEDED


def mapped(name: str) -> str:
    if name == "0":
        while INSIDE:
            INSIDE.pop()()
    ASKED.wait(30)
    RAN.append(name)
    return name


def test_a_map_starts_no_item_and_records_those_in_hand() -> None:
    world = World()
    ASKED.clear()
    items = [str(number) for number in range(200)]

    def body(flow: Flow) -> list[str]:
        if not ASKED.is_set():
            INSIDE[:] = [ASKED.set, lambda: world.wish(flow, "hold")]
        return flow.map("items", mapped, items, max_workers=2)

    with pytest.raises(AttemptParked):
        world.task.run(body)
    assert 0 < len(RAN) < 200
    world.wish_before(None)
    world.task.same_again()
    assert world.task.run(body) == items
    assert sorted(map(int, RAN)) == list(range(200)), "each of them once"


def test_a_wait_is_not_slept_through() -> None:
    world = World()

    def body(flow: Flow) -> None:
        with ThreadPoolExecutor(1) as beside:
            beside.submit(world.wish, flow, "hold").result()
        flow.sleep("a while", 20)

    with pytest.raises(AttemptParked, match="held"):
        world.task.run(body)
    assert world.state is ExecutionState.PAUSED


def test_the_effect_in_hand_is_recorded_before_the_attempt_ends() -> None:
    world = World()

    def body(flow: Flow) -> str:
        INSIDE.append(lambda: world.wish(flow, "cancel"))
        world.paid(flow, "first")
        return flow.step("after", world.work, "after", cache_key="after")

    with pytest.raises(AttemptCancelled):
        world.task.run(body)
    assert world.effect("first") is EffectState.SUCCEEDED
