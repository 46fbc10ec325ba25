"""
The rows of a query as items, one at a time, through any connection whose hook speaks DB-API.

Drivers that fetch a whole result unless they are asked not to are asked not to: a named cursor of psycopg, an
unbuffered one of MySQL. Every other driver is read by ``fetchmany``, which is as large as the driver makes it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, suppress
from typing import Any

from airflow_aiflow.exceptions import AiflowConfigError

#: Rows that are fetched at once.
ROWS = 1_000

#: Of the server-side cursor; one is open in a connection of its own.
CURSOR = "aiflow_items"


def query_rows(conn_id: str, sql: str) -> Generator[dict[str, Any], None, None]:
    """
    Run a query and give its rows, each as a dict by the names of its columns.

    :param conn_id: of any type whose hook is a ``DbApiHook``.
    :param sql: one statement that gives rows.
    :raises AiflowConfigError: if the connection is not there, is no database's, or the query gives no rows.
    """
    with closing(_connection(conn_id)) as connection, closing(_cursor(connection)) as cursor:
        cursor.execute(sql)
        rows = cursor.fetchmany(ROWS)  # before the description: of a server-side cursor there is none yet
        if cursor.description is None:
            raise AiflowConfigError(f"items_sql gives no rows: {sql[:200]!r}; it must be one SELECT")
        names = [str(column[0]) for column in cursor.description]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise AiflowConfigError(f"items_sql gives two columns called {twice[0]!r}: name one of them by AS")
        while rows:
            for row in rows:
                yield dict(zip(names, row.values() if isinstance(row, dict) else row, strict=True))
            rows = cursor.fetchmany(ROWS)
        with suppress(Exception):  # the rows are read; a database that can't end a transaction ends it by itself
            connection.rollback()


def _connection(conn_id: str) -> Any:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowException

    from airflow_aiflow.hooks.aiflow import existing_connection

    connection = existing_connection(conn_id, "the database of items_sql", "postgres://USER:PASSWORD@HOST/DATABASE")
    try:
        hook = BaseHook.get_hook(conn_id)
    except (AirflowException, ImportError) as error:
        raise AiflowConfigError(
            f"the connection '{conn_id}' can't be used for items_sql: {error}. Is the provider of type "
            f"{connection.conn_type!r} installed?"
        ) from error
    if not isinstance(hook, DbApiHook):
        raise AiflowConfigError(
            f"the connection '{conn_id}' is of type {connection.conn_type!r}, whose hook runs no SQL: items_conn_id "
            "names a database"
        )
    return hook.get_conn()


def _cursor(connection: Any) -> Any:
    driver = type(connection).__module__.partition(".")[0]
    if driver in ("psycopg", "psycopg2"):
        cursor = connection.cursor(name=CURSOR)
        cursor.itersize = ROWS
        return cursor
    if driver in ("MySQLdb", "pymysql"):
        from importlib import import_module

        return connection.cursor(import_module(f"{driver}.cursors").SSCursor)
    return connection.cursor()
