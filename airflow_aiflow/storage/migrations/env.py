"""
Alembic's entry: one transaction for everything, behind an advisory lock that is taken before anything is looked at.

Every upgrade ends with the grants, so that tables of a new revision are open to the role that tasks use.
"""

from __future__ import annotations

from typing import Any

from alembic import context
from sqlalchemy import Connection

from airflow_aiflow.storage.migrations.raw_sql import run_file
from airflow_aiflow.storage.schema import SCHEMA, VERSION_TABLE


def configure(**where: Any) -> None:
    """Tell Alembic where to work, and that its version table lives among ours."""
    context.configure(version_table=VERSION_TABLE, version_table_schema=SCHEMA, **where)


def migrate_online() -> None:
    """Upgrade the database behind the connection that the caller gave."""
    connection: Connection = context.config.attributes["connection"]
    with connection.begin():
        configure(connection=connection)
        run_file("prelude.sql")
        context.run_migrations()
        run_file("grants.sql")


def migrate_offline() -> None:
    """Write the SQL of the upgrade out."""
    configure(dialect_name="postgresql")
    with context.begin_transaction():
        run_file("prelude.sql")
        context.run_migrations()
        run_file("grants.sql")


if context.is_offline_mode():
    migrate_offline()
else:
    migrate_online()
