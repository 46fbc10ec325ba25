"""What a person wishes of a clear, and what an attempt was told to do after one."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add a column and a table."""
    run_file("versions/0003_wish.sql")
