"""Turn the fields of an Airflow connection into what libpq takes. The password is in the result alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_aiflow.exceptions import AiflowConfigError

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


def build_conninfo(
    where: str,
    *,
    conn_type: str | None,
    host: str | None,
    port: int | str | None,
    schema: str | None,
    login: str | None,
    password: str | None,
    extra: Any,
) -> str:
    """
    Build the connection string of the ledger; the fields are Airflow's.

    :param where: names the connection in messages, such as ``connection 'aiflow_ledger'``.
    :raises AiflowConfigError: if the connection is of another type, or its extra holds what libpq does not know.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    if conn_type != "postgres":
        raise AiflowConfigError(f"{where} is of type '{conn_type}'; one of type 'postgres' is needed here")
    if not isinstance(extra, Mapping):
        raise AiflowConfigError(f"{where}: extra must be a JSON object")
    parts = {name: value for name, value in extra.items() if name not in NOT_LIBPQ and value not in (None, "")}
    parts |= {"host": host, "port": port, "dbname": schema, "user": login, "password": password}
    try:
        return make_conninfo(**{name: value for name, value in parts.items() if value is not None})
    except ProgrammingError as error:
        # libpq names the option, never a value.
        raise AiflowConfigError(f"{where}: {str(error).strip()}; look at its extra") from None
