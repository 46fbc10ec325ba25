"""What clients hand in."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a table."""
    run_file("versions/0007_submission.sql")
