"""Which database a command is about that effects change: a connection id of the environment, or an address."""

from __future__ import annotations

import os
import re

from airflow_aiflow.cli.ledger_address import conninfo_of
from airflow_aiflow.exceptions import AiflowConfigError

#: What Airflow allows as a connection id; an address holds other characters.
_CONN_ID = re.compile(r"[\w.-]+")


def find_target(conn: str) -> str:
    """
    Find the address of a target.

    :param conn: a connection id, or an address.
    :return: what libpq takes.
    :raises AiflowConfigError: if the environment has no such connection, or it can't be read.
    """
    if not _CONN_ID.fullmatch(conn):
        return conn
    variable = f"AIRFLOW_CONN_{conn.upper()}"
    value = os.environ.get(variable)
    if not value:
        raise AiflowConfigError(
            f"{variable} is not set: set it to the connection with a role that may create a schema, or give the address"
        )
    return conninfo_of(value, variable)


def target_name(conn: str) -> str:
    """
    Name a target in a message: an address may hold a password.

    :param conn: a connection id, or an address.
    """
    return f"'{conn}'" if _CONN_ID.fullmatch(conn) else "the given address"
