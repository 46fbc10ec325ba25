"""What an author says of a task, to find its runs by."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add a table, empty: the release before neither reads nor writes it."""
    run_file("versions/0012_labels.sql")
