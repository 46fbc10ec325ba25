"""Turn an Airflow connection of type postgres into what libpq takes. The password is in the result alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_aiflow.storage.conninfo import build_conninfo

if TYPE_CHECKING:
    from airflow.sdk import Connection


def ledger_conninfo(connection: Connection) -> str:
    """
    Build the connection string of the ledger.

    :param connection: of type ``postgres``.
    :raises AiflowConfigError: if the connection is of another type, or its extra holds what libpq does not know.
    """
    return build_conninfo(
        f"connection '{connection.conn_id}'",
        conn_type=connection.conn_type,
        host=connection.host,
        port=connection.port,
        schema=connection.schema,
        login=connection.login,
        password=connection.password,
        extra=connection.extra_dejson,
    )
