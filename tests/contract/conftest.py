"""Run every contract test of the ledger on every ledger."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_aiflow.durable.ports import Ledger
from tests.contract.ledger_world import MemoryWorld, World


@pytest.fixture(params=["memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Give a ledger and what stands behind it."""
    world: World = MemoryWorld()
    yield world
    world.ledger.close()


@pytest.fixture
def ledger(world: World) -> Ledger:
    """Give the ledger alone."""
    return world.ledger
