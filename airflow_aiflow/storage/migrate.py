"""
Bring a ledger's database to the schema that this code knows.

Run with the owner's connection: whoever migrates owns the tables, and a role named ``aiflow`` gets the rows.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.storage.postgres_faults import address, wrap
from airflow_aiflow.storage.schema import EXPECTED, check_version
from airflow_aiflow.storage.statements import statement

if TYPE_CHECKING:
    from alembic.config import Config

#: Alembic keeps its context in the module: two upgrades in threads of one process would run on each other's connection.
_alembic = threading.Lock()

#: Oldest PostgreSQL whose statements were tried, as ``server_version_num``.
OLDEST_SERVER = 140_000


def current(dsn: str) -> str | None:
    """
    Give the revision of a ledger's schema; ``None``: it has none.

    :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
    :raises AiflowConfigError: if the address is none, or the server too old, or its encoding another than UTF-8.
    :raises LedgerUnavailableError: if the database can't be asked.
    """
    where = address(dsn)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            _check_server(connection, where)
            try:
                rows = connection.execute(statement("schema_version")).fetchall()
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                return None
    except psycopg.Error as fault:
        raise wrap(fault, where) from fault
    return str(rows[0][0]) if rows[0][0] is not None else None


def _check_server(connection: psycopg.Connection[tuple[object, ...]], where: str) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        major = connection.info.server_version // 10_000
        raise AiflowConfigError(f"{where} runs PostgreSQL {major}: 14 or newer is needed")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise AiflowConfigError(f"{where} has the encoding {encoding}: create the database with ENCODING 'UTF8'")


def check(dsn: str) -> None:
    """
    Compare a ledger's schema with the one that this code knows.

    :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
    :raises LedgerSchemaError: if it is missing, older or newer.
    """
    check_version(current(dsn))


def upgrade(dsn: str) -> None:
    """
    Upgrade a ledger's schema; where it is the newest already, only the grants are made again.

    Any number of upgrades may run at once: they wait for each other.

    :param dsn: the owner's address: a ``postgresql://`` URI or ``key=value`` pairs.
    :raises LedgerSchemaError: if the schema is newer than this code, or the role lacks a right.
    :raises LedgerUnavailableError: if the database can't be asked.
    """
    from alembic import command
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.exc import DBAPIError

    found = current(dsn)
    if found is not None and found > EXPECTED:
        check_version(found)
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(dsn),
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
    )
    config = _config()
    try:
        with _alembic, engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, EXPECTED)
    except psycopg.Error as fault:
        raise wrap(fault, address(dsn)) from fault
    except DBAPIError as fault:
        if isinstance(fault.orig, psycopg.Error):
            raise wrap(fault.orig, address(dsn)) from fault
        raise


def script() -> str:
    """Give the SQL that builds the schema from nothing, for who may not let a program change a database."""
    from alembic import command

    config = _config()
    config.output_buffer = io.StringIO()
    with _alembic:
        command.upgrade(config, EXPECTED, sql=True)
    return config.output_buffer.getvalue()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "airflow_aiflow.storage:migrations")
    return config
