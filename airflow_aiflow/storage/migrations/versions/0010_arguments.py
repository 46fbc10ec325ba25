"""What is kept of a step's arguments."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add a column that may be null: the release before does not write it."""
    run_file("versions/0010_arguments.sql")
