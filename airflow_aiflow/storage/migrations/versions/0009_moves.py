"""What moves submissions: cancel and hold, pace, callbacks, uploads."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add columns and three tables."""
    run_file("versions/0009_moves.sql")
