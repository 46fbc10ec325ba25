"""What people read: days of a DAG, and where an artifact was recorded."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add a table and two indexes."""
    run_file("versions/0008_views.sql")
