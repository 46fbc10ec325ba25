"""What recovery knows of stalled executions and does about them."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add columns, indexes and a table."""
    run_file("versions/0004_recovery.sql")
    run_file("versions/0004_tally.sql")
