"""The guard's two statements: they keep or shorten a lease that is held, and never give one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.statements import statement
from tests.contract.ledger_world import an_attempt, an_execution, start, take


@pytest.fixture(scope="module", name="dsn")
def _dsn(postgres_server: PostgresServer) -> str:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    return dsn


@pytest.fixture(name="ledger")
def _ledger(dsn: str) -> Iterator[PostgresLedger]:
    with closing(PostgresLedger.connect(dsn)) as ledger:
        yield ledger


def said(dsn: str, name: str, lease: Lease, **params: float | str) -> bool:
    """Carry a statement out as the guard does; whether it found the lease."""
    values = {"execution_id": lease.execution_pk, "fence": lease.fence, "step": None} | params
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        return bool(connection.execute(statement(name).encode(), values).fetchall())


def row(dsn: str, lease: Lease) -> tuple[Any, ...] | None:
    """Give seconds left, the last progress and the step."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "select extract(epoch from expires_at - clock_timestamp())::float8, progress_at, step_name "
            "from aiflow.lease where execution_id = %s",
            (lease.execution_pk,),
        ).fetchone()


def test_a_renewal_says_nothing_of_progress(dsn: str, ledger: PostgresLedger) -> None:
    lease = start(ledger).lease
    ledger.beat(lease, ttl=5.0, idle=0.0, step="page")
    before = row(dsn, lease)
    assert said(dsn, "renew", lease, ttl=60.0)
    after = row(dsn, lease)
    assert before is not None
    assert after is not None
    assert before[0] <= 5 < 50 < after[0] <= 60
    assert before[1:] == after[1:]


@pytest.mark.parametrize(("left", "least", "most"), [(2.0, 0.0, 2.0), (3600.0, 10.0, 30.0)])
def test_a_death_shortens_a_lease_and_never_lengthens_it(
    dsn: str, ledger: PostgresLedger, left: float, least: float, most: float
) -> None:
    lease = start(ledger).lease
    assert said(dsn, "lapse", lease, left=left, step="page")
    found = row(dsn, lease)
    assert found is not None
    assert least < found[0] <= most
    assert found[2] == "page"  # where it died: no beat may have said so


def test_a_death_between_steps_keeps_the_step_that_was_told(dsn: str, ledger: PostgresLedger) -> None:
    lease = start(ledger).lease
    ledger.beat(lease, ttl=5.0, idle=0.0, step="page")
    assert said(dsn, "lapse", lease, left=1.0)
    found = row(dsn, lease)
    assert found is not None
    assert found[2] == "page"


@pytest.mark.parametrize("state", [ExecutionState.SUCCEEDED, ExecutionState.FAILED, ExecutionState.PAUSED])
def test_after_the_end_no_beat_gives_a_lease(dsn: str, ledger: PostgresLedger, state: ExecutionState) -> None:
    """C36: a heartbeat that lands just after the end, whoever sends it."""
    lease = start(ledger).lease
    ledger.finish(lease, state, result=None)
    assert not said(dsn, "renew", lease, ttl=60.0)
    assert not said(dsn, "lapse", lease, left=0.0)
    assert not ledger.beat(lease, ttl=60.0, idle=0.0, step=None).held
    assert row(dsn, lease) is None


def test_a_superseded_guard_does_not_touch_the_new_lease(dsn: str, ledger: PostgresLedger) -> None:
    execution = an_execution()
    old = take(ledger, an_attempt(execution)).lease
    ledger.let_go(old)
    new = take(ledger, an_attempt(execution, 2)).lease
    before = row(dsn, new)
    assert not said(dsn, "renew", old, ttl=600.0)
    assert not said(dsn, "lapse", old, left=0.0)
    after = row(dsn, new)
    assert before is not None
    assert after is not None
    assert 0 < after[0] <= before[0]
