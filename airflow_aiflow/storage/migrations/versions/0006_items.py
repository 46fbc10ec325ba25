"""What other runs may reuse of model calls and items, and the items of maps that failed."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add two tables."""
    run_file("versions/0006_items.sql")
