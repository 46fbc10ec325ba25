"""A call that its process left on purpose, and until when."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add a column that may be null, and a view that reads it."""
    run_file("versions/0011_left.sql")
