"""Run every contract test of the ledger on every ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import connections, migrate
from tests.contract.ledger_world import MemoryWorld, PostgresWorld, World
from tests.pooler import PGBOUNCER, pooled


@pytest.fixture(scope="session")
def postgres_ledger(postgres_server: PostgresServer) -> tuple[str, str]:
    """Give the addresses of one upgraded ledger: for the role that tasks use, and for its owner."""
    owner = postgres_server.fresh_database("contract")
    migrate.upgrade(owner)
    # Whoever relied on a search path would find out here: by default the role's own name is on it.
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(SQL("alter database {} set search_path = ''").format(Identifier(_name(owner))))
    return postgres_server.dsn(_name(owner)), owner


@pytest.fixture(scope="session")
def pooled_ledger(postgres_ledger: tuple[str, str], stack_folder: Path) -> Iterator[tuple[str, str]]:
    """Give the same ledger through a pooler."""
    folder = stack_folder / "pooler"
    folder.mkdir()
    tasks, owner = postgres_ledger
    with pooled(tasks, folder) as address:
        yield address, owner


#: The pooler's turn comes where the program is installed.
LEDGERS = ["memory", "postgres", "postgres-prepared", *(["pgbouncer"] if PGBOUNCER else [])]


def _name(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture(params=LEDGERS)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Give a ledger and what stands behind it; PostgreSQL's also with every statement prepared at its first use."""
    world: World
    if request.param == "memory":
        world = MemoryWorld()
    else:
        # Behind the pooler nothing is prepared, whatever is asked for.
        monkeypatch.setattr(connections, "PREPARE_AFTER", None if request.param == "postgres" else 0)
        addresses = "pooled_ledger" if request.param == "pgbouncer" else "postgres_ledger"
        world = PostgresWorld(*request.getfixturevalue(addresses))
    yield world
    world.ledger.close()
    world.close()


@pytest.fixture
def ledger(world: World) -> Ledger:
    """Give the ledger alone."""
    return world.ledger
