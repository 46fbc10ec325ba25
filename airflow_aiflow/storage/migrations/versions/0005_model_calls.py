"""Limits of model calls and what workers borrow of them, budgets and what is held of them, calls without a result."""

from __future__ import annotations

from airflow_aiflow.storage.migrations.raw_sql import run_file

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the tables and the functions."""
    run_file("versions/0005_model_calls.sql")
