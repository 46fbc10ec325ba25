"""One app of the reading and answering routes on a real ledger in which things have happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_aiflow.local.postgres import PostgresServer
from tests.integration.reading.house import House


@pytest.fixture(scope="session")
def told(postgres_server: PostgresServer) -> Iterator[House]:
    """Give a ledger with a story in it; tests that change nothing share it."""
    house = House(postgres_server.fresh_database("reading"))
    house.tell()
    yield house
    house.close()


@pytest.fixture
def house(told: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """Give the app on it, used by ann, who may do everything but see the DAG ``secret``."""
    told.enter(monkeypatch)
    return told


@pytest.fixture
def fresh(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Give the app on a ledger of its own, in which nothing has happened yet."""
    house = House(postgres_server.fresh_database("reading_fresh"))
    house.enter(monkeypatch)
    yield house
    house.close()
