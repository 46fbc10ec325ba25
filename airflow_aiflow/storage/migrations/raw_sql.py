"""Run a file of raw SQL inside a migration, as it is: Alembic's own ways read ``:name`` and ``%`` as parameters."""

from __future__ import annotations

from contextlib import closing
from importlib.resources import files

from alembic import context


def run_file(name: str) -> None:
    """
    Run a file of this folder, or write it out where Alembic writes instead of running.

    :param name: its path from here.
    """
    text = (files(__package__) / name).read_text(encoding="utf-8")
    migration = context.get_context()
    if migration.as_sql:
        migration.impl.static_output(text)
        return
    connection = migration.connection
    if connection is None:
        raise RuntimeError("Alembic has neither a connection nor a place to write to")
    with closing(connection.connection.cursor()) as cursor:
        cursor.execute(text)
