"""Turn an Airflow connection of type postgres into what libpq takes. The password is in the result alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_aiflow.exceptions import AiflowConfigError

if TYPE_CHECKING:
    from airflow.sdk import Connection

#: Extras that Airflow's PostgreSQL hook reads itself and libpq would refuse.
NOT_LIBPQ = frozenset(
    {
        "aws_conn_id",
        "azure_conn_id",
        "cluster-identifier",
        "cursor",
        "iam",
        "redshift",
        "redshift-serverless",
        "region",
        "region_name",
        "session_kwargs",
        "sqlalchemy_query",
        "sqlalchemy_scheme",
        "workgroup-name",
    }
)


def ledger_conninfo(connection: Connection) -> str:
    """
    Build the connection string of the ledger.

    :param connection: of type ``postgres``.
    :raises AiflowConfigError: if the connection is of another type, or its extra holds what libpq does not know.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    conn_id = connection.conn_id
    if connection.conn_type != "postgres":
        raise AiflowConfigError(
            f"connection '{conn_id}' is of type '{connection.conn_type}'; the ledger needs one of type 'postgres'"
        )
    extra = connection.extra_dejson
    if not isinstance(extra, dict):
        raise AiflowConfigError(f"connection '{conn_id}': extra must be a JSON object")
    parts = {name: value for name, value in extra.items() if name not in NOT_LIBPQ and value not in (None, "")}
    parts |= {
        "host": connection.host,
        "port": connection.port,
        "dbname": connection.schema,
        "user": connection.login,
        "password": connection.password,
    }
    try:
        return make_conninfo(**{name: value for name, value in parts.items() if value is not None})
    except ProgrammingError as error:
        # libpq names the option, never a value.
        raise AiflowConfigError(f"connection '{conn_id}': {str(error).strip()}; look at its extra") from None
