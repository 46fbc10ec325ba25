"""Async tasks: the same calls, awaitable; one core beneath."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from airflow_aiflow import AsyncFlow, EffectContext, Flow, JobStatus, current_flow
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.reconcile import Finding, Happened, Intent
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AttemptParked,
    EffectInDoubtError,
    EffectKeyRequiredError,
    EffectTimeoutError,
    FlowError,
    StepTimeoutError,
)
from airflow_aiflow.runtime.async_flow import run_async
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.coroutines import MOST_CALLS
from airflow_aiflow.runtime.shutdown import Shutdown
from airflow_aiflow.testing import DurableTask, ScriptedModels

pytestmark = pytest.mark.timeout(60)

RAN: list[object] = []

PATIENCE = 30.0

Body = Callable[[AsyncFlow], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def real(**options: Any) -> DurableTask:
    return DurableTask(clock=SystemClock(), **options)


async def double(number: int) -> int:
    await asyncio.sleep(0)
    RAN.append(number)
    return 2 * number


def triple(number: int) -> int:
    RAN.append(number)
    return 3 * number


async def send(ctx: EffectContext, to: str) -> str:
    await asyncio.sleep(0)
    RAN.append(to)
    return f"{ctx.key} to {to}"


def in_two_tries(task: DurableTask, body: Body) -> Any:
    """Fail after the body's end, then replay it."""

    async def failing(flow: AsyncFlow) -> None:
        await body(flow)
        raise RuntimeError("after all")

    with pytest.raises(RuntimeError, match="after all"):
        task.run_async(failing)
    RAN.append("again")
    return task.run_async(body)


def test_each_call_is_recorded_and_replayed() -> None:
    async def body(flow: AsyncFlow) -> list[Any]:
        await flow.emit("begun", at=1)
        await flow.progress(1, 2)
        saved = await flow.save("text", name="a.txt")
        return [
            await flow.step("async", double, 1),
            await flow.step("sync", triple, 1),
            await flow.llm("ask", "What?"),
            await flow.llm_map("all", ["a", "b"]),
            await flow.map("items", double, [1, 2, 3]),
            await flow.map("plain", triple, [1, 2, 3]),
            await flow.effect("send", send, "a@example.com", key="one"),
            await flow.load(saved),
            (flow.generation, flow.spent.calls),
        ]

    models = ScriptedModels()
    task = DurableTask(models=models)
    result = in_two_tries(task, body)
    assert result[0:2] == [2, 3]
    assert result[4:6] == [[2, 4, 6], [3, 6, 9]]
    assert result[6:] == ["one to a@example.com", "text", (1, 3)]
    assert RAN[-1] == "again", "nothing ran a second time"


def test_calls_side_by_side_are_units_of_the_same_body() -> None:
    together = 10

    async def body(flow: AsyncFlow) -> list[int]:
        met = asyncio.Barrier(together)

        async def meet(number: int) -> int:
            RAN.append(number)
            return number

        async def one(number: int) -> int:
            await met.wait()
            return await flow.step("meet", meet, number)

        return list(await asyncio.gather(*(one(number) for number in range(together))))

    assert in_two_tries(DurableTask(), body) == list(range(together))
    assert RAN[-1] == "again"


def test_calls_inside_a_step_belong_to_its_unit() -> None:
    async def inner(number: int) -> int:
        flow = current_flow()
        assert isinstance(flow, AsyncFlow)
        first, second = await asyncio.gather(flow.step("x", double, number), flow.step("y", double, number + 10))
        return int(first + second)

    def helper(number: int) -> int:
        flow = current_flow()
        assert isinstance(flow, Flow)
        return flow.step("x", triple, number)

    async def body(flow: AsyncFlow) -> list[int]:
        return list(
            await asyncio.gather(
                flow.step("outer", inner, 1), flow.step("outer", inner, 2), flow.step("helper", helper, 1)
            )
        )

    task = DurableTask()
    assert in_two_tries(task, body) == [24, 28, 3]
    assert RAN[-1] == "again"
    lease = task.run(lambda flow: flow._session.replay.steps)
    units = {record.name: record.unit.split("/")[0] for record in lease.values() if record.name in "xy"}
    assert set(units.values()) <= {"outer", "helper"}


def test_many_calls_that_each_wait_for_a_call_inside_come_to_an_end() -> None:
    async def inner(number: int) -> int:
        flow: Any = current_flow()
        return int(await flow.step("deep", double, number))

    async def body(flow: AsyncFlow) -> int:
        results = await asyncio.gather(*(flow.step("outer", inner, number) for number in range(3 * MOST_CALLS)))
        return sum(results)

    assert DurableTask().run_async(body) == sum(2 * number for number in range(3 * MOST_CALLS))


def test_an_effect_without_a_key_needs_one_the_second_time() -> None:
    async def body(flow: AsyncFlow) -> None:
        await flow.effect("send", send, "a")
        await flow.effect("send", send, "b")

    with pytest.raises(EffectKeyRequiredError):
        DurableTask().run_async(body)
    assert RAN == ["a"]


def test_a_job_takes_coroutine_functions() -> None:
    async def poll(job_id: str) -> JobStatus:
        RAN.append(job_id)
        return JobStatus("succeeded")

    async def fetch(job_id: str) -> str:
        return f"result of {job_id}"

    async def body(flow: AsyncFlow) -> Any:
        await flow.sleep("a moment", 1)
        return await flow.job("train", submit, poll=poll, result=fetch, key="k")

    assert in_two_tries(DurableTask(), body) == "result of job-1"
    assert RAN == ["submit", "job-1", "again"]


async def submit() -> str:
    RAN.append("submit")
    return "job-1"


# --- time-outs, cancellation ------------------------------------------------------------------------------------------


async def forever(name: str) -> str:
    try:
        await asyncio.sleep(PATIENCE)
    finally:
        RAN.append(f"left {name}")
    return name


async def forever_sent(ctx: EffectContext) -> str:
    return await forever("effect")


def test_a_step_is_cancelled_at_its_deadline() -> None:
    async def body(flow: AsyncFlow) -> str:
        try:
            await flow.step("slow", forever, "a", timeout=0.1)
        except StepTimeoutError:
            return "over"
        return "never"

    assert real().run_async(body) == "over"
    assert RAN == ["left a"]


async def finishes_anyway(name: str) -> str:
    try:
        await asyncio.sleep(PATIENCE)
    except asyncio.CancelledError:
        return f"{name} all the same"
    return "never"


def test_a_step_that_brings_its_result_when_cancelled_keeps_it() -> None:
    async def body(flow: AsyncFlow) -> str:
        return await flow.step("slow", finishes_anyway, "a", timeout=0.1)

    assert real().run_async(body) == "a all the same"


def test_an_effect_that_passes_its_deadline_is_in_doubt() -> None:
    async def body(flow: AsyncFlow) -> str:
        return str(await flow.effect("send", forever_sent, key="k", timeout=0.1, on_in_doubt="hold"))

    task = real()
    for _ in range(2):
        with pytest.raises(EffectInDoubtError) as doubt:
            task.run_async(body)
    assert RAN == ["left effect"]
    assert not isinstance(doubt.value.__cause__, EffectTimeoutError)


async def slow_but_paid(name: str) -> str:
    await asyncio.sleep(0.2)
    RAN.append(name)
    return name


async def lost_once(to: str) -> str:
    RAN.append(to)
    if len(RAN) == 1:
        raise ConnectionResetError
    return f"sent to {to}"


async def probe_hangs(_intent: Intent) -> Finding:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def probe_raises(_intent: Intent) -> Finding:
    raise RuntimeError("no answer")


def plain_probe_hangs(_intent: Intent) -> Finding:
    read_end, _write_end = os.pipe()
    os.read(read_end, 1)
    raise AssertionError("nothing is ever written")


@pytest.mark.parametrize("probe", [probe_hangs, probe_raises, plain_probe_hangs])
def test_a_probe_that_hangs_or_raises_cannot_tell(probe: Callable[[Intent], Any]) -> None:
    task = real()

    async def body(flow: AsyncFlow) -> Any:
        return await flow.effect(
            "mail", lost_once, "a", key="k", reconcile=probe, timeout=0.3, on_in_doubt="hold", retries=0
        )

    for _ in range(2):
        with pytest.raises(EffectInDoubtError):
            task.run_async(body)
    assert sum("that is read as can't tell" in line for line in task.host.warnings) == 2
    assert RAN == ["a"]


def test_an_awaited_probe_settles_a_doubt() -> None:
    async def probe(intent: Intent) -> Finding:
        await asyncio.sleep(0)
        return Happened(f"found {intent.key}")

    async def body(flow: AsyncFlow) -> Any:
        return await flow.effect("mail", lost_once, "a", key="k", reconcile=probe)

    task = real()
    assert task.run_async(body) == task.run_async(body) == "found k"
    assert RAN == ["a"]


def test_an_outcome_is_recorded_also_where_nobody_waits_any_more() -> None:
    async def body(flow: AsyncFlow) -> str:
        try:
            async with asyncio.timeout(0.05):
                return await flow.step("paid", slow_but_paid, "a")
        except TimeoutError:
            return "too late"

    task = real()
    assert task.run_async(body) == "too late"
    task.cleared()
    task._on_clear = "resume"
    assert task.run_async(body) == "a"
    assert RAN == ["a"]


def test_an_error_of_one_call_costs_no_other() -> None:
    async def breaks(name: str) -> str:
        raise ValueError(name)

    async def body(flow: AsyncFlow) -> Any:
        return await asyncio.gather(flow.step("bad", breaks, "a"), flow.step("paid", slow_but_paid, "b"))

    task = real()
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            task.run_async(body)
    assert RAN == ["b"]


# --- signals ----------------------------------------------------------------------------------------------------------


def parks(_name: str) -> None:
    flow = current_flow()
    flow._session.gate.park(60, "waits")


@pytest.mark.parametrize("grouped", [False, True], ids=["gather", "task group"])
def test_a_park_goes_through_the_loop(grouped: bool) -> None:
    async def body(flow: AsyncFlow) -> None:
        if grouped:
            async with asyncio.TaskGroup() as group:
                group.create_task(flow.step("a", parks, "a"))
                group.create_task(flow.step("b", double, 1))
        else:
            await asyncio.gather(flow.step("a", parks, "a"), flow.step("b", double, 1))

    task = DurableTask()
    with pytest.raises(AttemptParked) as parked:
        task.run_async(body)
    assert parked.value.delay == 60
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    assert standing.state is ExecutionState.PAUSED


def shut_down(task: DurableTask, body: Body) -> Any:
    """Run with the handler of a real task process for SIGTERM."""
    shutdown = Shutdown()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: shutdown.ask())
    attempt = task.attempt()
    task.retried()
    try:
        return run_attempt(attempt, task.services, lambda _flow: run_async(body), shutdown=shutdown)
    finally:
        signal.signal(signal.SIGTERM, before)


async def told(name: str) -> str:
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.02)
    RAN.append(name)
    return name


def test_sigterm_lets_the_calls_in_hand_end_and_nothing_start() -> None:
    async def body(flow: AsyncFlow) -> Any:
        first = await asyncio.gather(flow.step("a", told, "a"), flow.step("b", slow_but_paid, "b"))
        return [*first, await flow.step("c", double, 1)]

    task = real()
    with pytest.raises(AttemptParked):
        shut_down(task, body)
    assert sorted(map(str, RAN)) == ["a", "b"]
    assert task.run_async(body) == ["a", "b", 2]
    assert len(RAN) == 3


async def told_and_stuck(ctx: EffectContext, name: str) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    return await forever(name)


def test_what_outlasts_the_grace_is_cancelled_and_in_doubt() -> None:
    async def body(flow: AsyncFlow) -> Any:
        return await flow.effect("send", told_and_stuck, "a", key="k", on_in_doubt="hold")

    task = real(settings=FlowSettings(shutdown_grace=0.1))
    with pytest.raises(AttemptParked):
        shut_down(task, body)
    assert RAN == ["left a"]
    with pytest.raises(EffectInDoubtError):
        task.run_async(body)


def test_the_words_of_airflow_reach_the_body_and_not_the_loop() -> None:
    class TimedOut(Exception):
        """What Airflow's handler of ``execution_timeout`` raises."""

    def over(_number: int, _frame: object) -> None:
        raise TimedOut

    async def body(flow: AsyncFlow) -> Any:
        await flow.step("b", double, 1)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            RAN.append("cleaned")

    before = signal.signal(signal.SIGALRM, over)
    task = real()
    began = time.monotonic()
    try:
        with pytest.raises(TimedOut):
            task.run_async(body)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < PATIENCE / 2
    assert RAN == [1, "cleaned"]
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    assert standing.state is ExecutionState.FAILED


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_sync_flow_refuses_coroutine_functions() -> None:
    with pytest.raises(TypeError, match=r"make the task 'async def' and await flow\.step"):
        DurableTask().run(lambda flow: flow.step("a", double, 1))  # type: ignore[unused-coroutine]


def test_a_transaction_takes_a_plain_function() -> None:
    async def body(flow: AsyncFlow) -> None:
        await flow.transaction("a", double, 1, conn_id="db")  # type: ignore[unused-coroutine]

    with pytest.raises(TypeError, match="write a plain 'def'"):
        DurableTask().run_async(body)


def test_there_is_no_async_flow_in_a_plain_task() -> None:
    with pytest.raises(FlowError, match=r"@task\.durable"):
        AsyncFlow.from_context()


def test_a_flow_in_a_closure_counts_as_a_constant() -> None:
    async def body(flow: AsyncFlow) -> Any:
        return await flow.step("x", lambda: flow.attempt and 7)

    assert in_two_tries(DurableTask(), body) == 7


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()

    async def body(flow: AsyncFlow) -> Any:
        return await asyncio.gather(*(flow.step("x", double, number) for number in range(5)))

    DurableTask().run_async(body)
    assert threading.active_count() <= before + 1


def test_a_call_without_await_is_no_success() -> None:
    """Python only warns of it, and the task would be green with its mail never sent."""

    async def body(flow: AsyncFlow) -> str:
        await flow.step("one", double, 1)
        flow.effect("mail", double, 2, key="k")  # type: ignore[unused-coroutine]
        flow.step("two", double, 3)  # type: ignore[unused-coroutine]
        return "done"

    with pytest.raises(FlowError, match=r"flow.effect\('mail'\), flow.step\('two'\): called without await"):
        real().run_async(body)
    assert RAN == [1]


@pytest.mark.filterwarnings("error")
def test_a_call_that_was_made_a_task_or_cancelled_before_it_began_is_awaited() -> None:
    async def body(flow: AsyncFlow) -> str:
        early = asyncio.create_task(flow.step("cancelled", double, 1))
        early.cancel()
        late = asyncio.create_task(flow.effect("mail", double, 2, key="k"))
        await asyncio.wait([early])
        RAN.append(late.get_name())
        return "done"

    async def at_once(flow: AsyncFlow) -> str:
        RAN.append(asyncio.create_task(flow.effect("mail", double, 3, key="at once")))
        return "done"

    assert real().run_async(body) == "done"
    assert RAN[-1:] == [2]
    assert real().run_async(at_once) == "done"
    assert RAN[-1:] == [3]
