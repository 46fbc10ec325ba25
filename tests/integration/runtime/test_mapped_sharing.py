"""C14: a list that shifts above a cleared mapped task costs nothing, and hands no item another's past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.exceptions import SealError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask, ScriptedModels
from bench.counting import counting_ledger

CALLS: list[str] = []
SENT: list[str] = []

#: The test at work: part of its effects' keys, for a key is kept for ever.
RUN: list[str] = []

RAN, RAN_AGAIN = digest_upstream([("list", -1, 1.0)]), digest_upstream([("list", -1, 2.0)])


@pytest.fixture(autouse=True)
def _no_calls(request: pytest.FixtureRequest) -> None:
    CALLS.clear()
    SENT.clear()
    RUN[:] = [request.node.name]


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    opened = PostgresLedger.connect(dsn)
    yield opened
    opened.close()


@pytest.fixture
def index(ledger: PostgresLedger, request: pytest.FixtureRequest) -> Callable[..., DurableTask]:
    """Give map indexes of one task of one run."""

    def make(number: int, **options: Any) -> DurableTask:
        task = DurableTask(
            ledger=options.pop("ledger", ledger),
            clock=SystemClock(),
            run_id=request.node.name,
            map_index=number,
            models=ScriptedModels(answer),
            **options,
        )
        task.upstream_digest = RAN
        return task

    return make


def answer(request: Any) -> str:
    CALLS.append(request.prompt)
    return f"about {request.prompt}"


def send(item: str) -> str:
    SENT.append(item)
    return f"sent {item}"


def body(item: str) -> Callable[[Flow], tuple[str, str]]:
    def work(flow: Flow) -> tuple[str, str]:
        return flow.llm("page", item), flow.effect("mail", send, item, key=f"C14/{RUN[0]}/{item}")

    return work


def first_run(index: Callable[..., DurableTask], items: str, **options: Any) -> list[DurableTask]:
    tasks = [index(number, **options) for number in range(len(items))]
    for task, item in zip(tasks, items, strict=True):
        assert task.run(body(item))[0] == f"about {item}"
    return tasks


def shifted(
    index: Callable[..., DurableTask], tasks: list[DurableTask], items: str, **options: Any
) -> list[DurableTask]:
    """Clear the list above and all of the task: its map indexes now hold other items, and there may be more of them."""
    tasks = [*tasks, *(index(number, **options) for number in range(len(tasks), len(items)))]
    for task in tasks:
        task.cleared()
        task.upstream_digest = RAN_AGAIN
    return tasks


def test_a_shifted_list_costs_one_call(index: Callable[..., DurableTask]) -> None:
    tasks = shifted(index, first_run(index, "abc"), "zabc")
    for task, item in zip(tasks, "zabc", strict=True):
        assert task.run(body(item)) == (f"about {item}", f"sent {item}")
    assert Counter(CALLS) == Counter("abcz")
    assert Counter(SENT) == Counter("abcz")
    assert any("another map index" in line for line in tasks[1].host.lines)
    assert tasks[1].host.lines[-1].endswith("for 0 model calls, saved an unknown price of 1 call of 1 model call")


@pytest.mark.parametrize("options", [{"share_mapped": False}, {"on_clear": "fresh"}])
def test_who_wants_none_of_it_pays(index: Callable[..., DurableTask], options: dict[str, Any]) -> None:
    tasks = shifted(index, first_run(index, "ab", **options), "zab", **options)
    for task, item in zip(tasks, "zab", strict=True):
        task.run(body(item))
    assert Counter(CALLS) == Counter("abzab"), "every item was asked about again"


def test_a_generation_that_a_fresh_start_began_takes_over_nothing(index: Callable[..., DurableTask]) -> None:
    """Neither its first attempt nor a retry: who started anew wants to have it computed again."""
    tasks = shifted(index, first_run(index, "ab"), "ba")
    for task in tasks:
        task.upstream_digest = RAN

    def fails(flow: Flow) -> None:
        flow.llm("page", "b")
        raise ValueError("the code's own error")

    with pytest.raises(ValueError, match="own"):
        tasks[0].run(fails)
    tasks[0].run(lambda flow: (flow.llm("page", "b"), flow.llm("page", "a"), flow.llm("page", "b")))
    assert CALLS == ["a", "b", "b", "a", "b"]


def test_what_is_copied_is_ours(index: Callable[..., DurableTask], dsn: str) -> None:
    """A later attempt replays it from its own execution, and nothing is counted as paid twice."""
    tasks = shifted(index, first_run(index, "ab"), "zab")
    moved = tasks[1]
    attempt = moved.attempt()
    moved.retried()
    with open_flow(attempt, moved.services) as flow:
        assert flow.llm("page", "a") == "about a"
        assert flow.spent.calls == 1, "its own former page, b"
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "delete from aiflow.step s using aiflow.execution x where x.execution_id = s.execution_id "
            "and x.run_id = %s and x.map_index = 0",
            (moved.execution.run_id,),
        )
    assert moved.run(body("a"))[0] == "about a"
    assert Counter(CALLS) == Counter("ab")
    assert any("2 steps recorded, saved so far 1 model call," in line for line in moved.host.lines)


def test_a_live_sibling_is_left_alone(index: Callable[..., DurableTask]) -> None:
    """What a sibling that is still at work has recorded may yet be superseded; nobody builds on it."""
    first = index(0)
    with open_flow(first.attempt(), first.services) as flow:
        flow.llm("page", "a")
        [_, second] = shifted(index, [first], "ba")
        assert second.run(lambda f: f.llm("page", "a")) == "about a"
    assert CALLS == ["a", "a"]


def test_an_edited_row_of_a_sibling_is_refused(index: Callable[..., DurableTask], dsn: str) -> None:
    tasks = first_run(index, "ab")
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "update aiflow.step s set result = %s from aiflow.execution x where x.execution_id = s.execution_id "
            "and x.run_id = %s and x.map_index = 0",
            (b'"forged"', tasks[0].execution.run_id),
        )
    tasks = shifted(index, tasks, "zab")
    with pytest.raises(SealError, match="page"):
        tasks[1].run(body("a"))


def test_a_cleared_group_costs_few_queries_a_task(index: Callable[..., DurableTask], dsn: str) -> None:
    """Whatever is recorded, a task that only replays asks the ledger a constant number of times."""
    ledger, counts = counting_ledger(dsn)
    try:
        costs = []
        for number, steps in ((0, 1), (1, 40)):
            task = index(number, ledger=ledger)

            def work(flow: Flow, steps: int = steps, number: int = number) -> None:
                for step in range(steps):
                    flow.step("square", pow, step, 2)
                    flow.effect("mail", send, f"{step}", key=f"group/{number}/{step}")

            task.run(work)
            task.cleared()
            task.upstream_digest = RAN_AGAIN
            counts.clear()
            task.run(work)
            costs.append(dict(counts))
    finally:
        ledger.close()
    assert costs[0] == costs[1]
    assert sum(costs[0].values()) <= 7, costs[0]


def test_nobody_looks_among_siblings_that_recorded_nothing(index: Callable[..., DurableTask], dsn: str) -> None:
    ledger, counts = counting_ledger(dsn)
    try:
        task = index(0, ledger=ledger)
        task.run(body("q"))
        task.cleared()
        task.upstream_digest = RAN_AGAIN
        task.run(body("r"))
    finally:
        ledger.close()
    assert counts["shared_steps"] == 0
