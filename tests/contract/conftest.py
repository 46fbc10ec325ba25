"""Run every contract test of the ledger on every ledger."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from tests.contract.ledger_world import MemoryWorld, PostgresWorld, World


@pytest.fixture(scope="session")
def postgres_ledger(postgres_server: PostgresServer) -> tuple[str, str]:
    """Give the addresses of one upgraded ledger: for the role that tasks use, and for its owner."""
    owner = postgres_server.fresh_database("contract")
    migrate.upgrade(owner)
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"])), owner


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Give a ledger and what stands behind it."""
    world: World
    if request.param == "memory":
        world = MemoryWorld()
    else:
        world = PostgresWorld(*request.getfixturevalue("postgres_ledger"))
    yield world
    world.ledger.close()
    world.close()


@pytest.fixture
def ledger(world: World) -> Ledger:
    """Give the ledger alone."""
    return world.ledger
