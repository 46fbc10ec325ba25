"""The inbox: questions and persons' words, numbers for both, and what a clear looks up among mapped siblings."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the tables, columns, indexes and views."""
    run_file("versions/0002_inbox.sql")
