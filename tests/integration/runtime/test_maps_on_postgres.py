"""Maps on a real ledger: their connections, and a resume that reads in chunks what does not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.current import current_flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import POOL_SIZE, PostgresLedger
from airflow_aiflow.testing import DurableTask

RAN: list[int] = []


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    ledger = PostgresLedger.connect(dsn)
    yield ledger
    ledger.close()


def work(item: int) -> int:
    RAN.append(item)
    return item * 2


def inside(item: int) -> int:
    return current_flow().step("inside", work, item)


def test_five_hundred_steps_at_once_share_four_connections(ledger: PostgresLedger, dsn: str) -> None:
    """I21: what runs at once must not need a connection each."""
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="crowd")
    with open_flow(task.attempt(), task.services) as flow:
        assert flow.map("outer", inside, range(500), max_workers=100) == [n * 2 for n in range(500)]
        with psycopg.connect(dsn) as connection:
            [(count,)] = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database()"
            ).fetchall()
    assert count <= POOL_SIZE + 1, "and the one that counts"


def test_a_map_that_does_not_fit_into_memory_is_resumed_in_chunks(ledger: PostgresLedger) -> None:
    RAN.clear()
    ledger.most_steps = 100
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="large")
    items = 5_000

    def body(flow: Any) -> Any:
        first = flow.step("first", work, -1)
        return first, flow.map("work", work, range(items)), flow.step("last", work, -2)

    expected = (-2, [n * 2 for n in range(items)], -4)
    assert task.run(body) == expected
    assert len(RAN) == items + 2
    task.hears = False
    asked: list[int] = []
    kept = ledger.kept
    ledger.kept = lambda lease, generation, keys: asked.append(len(keys)) or kept(lease, generation, keys)  # type: ignore[method-assign, assignment, func-returns-value]
    assert task.run(body) == expected
    assert len(RAN) == items + 2, "nothing ran again"
    assert sum(asked) == items
    assert len(asked) < 15
    assert any(f"{items + 2} steps recorded" in line for line in task.host.lines)
