"""The ledger's core: executions, leases, attempts, steps, events, effects, intents, requeue marks."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables, the view and the function."""
    run_file("versions/0001_ledger.sql")
