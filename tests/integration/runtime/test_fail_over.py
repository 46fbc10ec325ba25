"""
The ledger's server became another one while an attempt was at work: its last commits may be lost.

A fail-over is played by what every take-over compares: the server's timeline in the attempts' rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from airflow_aiflow.exceptions import AttemptAsks
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.testing import DurableTask

SENT: list[str] = []


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    SENT.clear()
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def task(dsn: str) -> Iterator[DurableTask]:
    ledger = PostgresLedger.connect(dsn)
    yield DurableTask(ledger=ledger, clock=SystemClock())
    ledger.close()


def send(ctx: EffectContext, to: str) -> str:
    SENT.append(to)
    return f"sent to {to}"


def killed(flow: Flow) -> None:
    """Be killed where the call was made and nothing of it is on the replica."""
    raise KeyboardInterrupt


def fail_over(dsn: str, *, at_work: bool) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("update aiflow.attempt set timeline = timeline + 1")
        if at_work:
            # As a killed process leaves it.
            connection.execute("update aiflow.attempt set ended_at = null, ending = null")


def body(policy: str = "ask") -> Any:
    return lambda flow: flow.effect("mail", send, "a@example.com", key="one", on_in_doubt=policy)


def test_an_effect_that_the_replica_knows_nothing_of_is_asked_about(task: DurableTask, dsn: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        task.run(killed)
    fail_over(dsn, at_work=True)
    with pytest.raises(AttemptAsks) as caught:
        task.run(body())
    assert "the ledger's server became another one" in caught.value.form.body
    assert SENT == []
    with closing(PostgresInbox.connect(dsn)) as inbox:
        (waiting,) = inbox.waiting()
        assert inbox.resolve(waiting.number, "did_not_happen", by="anna").counts
    task.same_again()
    assert task.run(body()) == "sent to a@example.com"
    assert SENT == ["a@example.com"]


def test_the_next_attempt_still_knows_of_it(task: DurableTask, dsn: str) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            task.run(killed)
        fail_over(dsn, at_work=True)
    with pytest.raises(KeyboardInterrupt):
        task.run(killed)
    with pytest.raises(AttemptAsks):
        task.run(body())


def test_a_target_that_dedups_is_called(task: DurableTask, dsn: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        task.run(killed)
    fail_over(dsn, at_work=True)
    assert task.run(body("retry")) == "sent to a@example.com"


def test_where_nothing_was_at_work_nothing_is_asked(task: DurableTask, dsn: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        task.run(killed)
    fail_over(dsn, at_work=False)
    assert task.run(body()) == "sent to a@example.com"
