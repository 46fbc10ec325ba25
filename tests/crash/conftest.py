"""Each test gets a ledger, a store and an outside of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from tests.crash.launcher import Attempts


@pytest.fixture
def attempts(tmp_path: Path, postgres_server: PostgresServer, object_store: ObjectStoreServer) -> Attempts:
    """Give the attempts of one execution."""
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    return Attempts(
        tmp_path,
        dsn,
        {
            "endpoint": object_store.endpoint,
            "access_key": object_store.access_key,
            "secret_key": object_store.secret_key,
            "bucket": object_store.bucket(),
            "secure": False,
        },
    )
