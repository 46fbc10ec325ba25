"""Turn the driver's errors into the ledger's, once. Addresses are told, passwords never."""

from __future__ import annotations

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.exceptions import (
    AiflowConfigError,
    AiflowError,
    LedgerError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from airflow_aiflow.storage.schema import UPGRADE

#: A table, column, function or schema that is not there: older or newer than this code, or none at all.
_OTHER_SCHEMA = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.UndefinedObject,
    errors.InvalidSchemaName,
)

#: The server is there and can't do it now; nothing of the statement remains. A read-only server is a replica.
_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.ActiveSqlTransaction,
)


class NoTablesError(LedgerSchemaError):
    """Say that a table or column of ours is not there; a role that may not look hears something else."""


class RowExistsError(LedgerError):
    """Say that a row of this key is there already; nothing was written."""


def address(conninfo: str) -> str:
    """
    Say where a connection leads, without its secrets.

    :param conninfo: a URI or ``key=value`` pairs.
    :raises AiflowConfigError: if it is neither.
    """
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        raise AiflowConfigError(
            "the ledger's address is neither a postgresql:// URI nor key=value pairs that PostgreSQL knows"
        ) from None
    host, port = parts.get("host") or "the local socket", parts.get("port") or "5432"
    return f"the ledger (PostgreSQL at {host}:{port}, database {parts.get('dbname') or parts.get('user') or '?'})"


def wrap(fault: psycopg.Error, where: str) -> AiflowError:
    """
    Give the ledger's error for a driver's.

    :param fault: what the driver raised.
    :param where: the ledger's address for people.
    """
    said = _said(fault)
    if isinstance(fault, _OTHER_SCHEMA):
        return NoTablesError(f"{where} has not the tables that this code knows ({said}): {UPGRADE}")
    if isinstance(fault, errors.InsufficientPrivilege):
        return LedgerSchemaError(
            f"{where} refuses its role a right ({said}): {UPGRADE}; it grants the role 'aiflow' what it needs"
        )
    if isinstance(fault, _PASSING):
        return LedgerUnavailableError(f"{where} can't be asked now ({said}); nothing is started on a guess, try again")
    kind = RowExistsError if isinstance(fault, errors.UniqueViolation) else LedgerError
    return kind(f"{where} refused a row or a statement ({said})")


def _said(fault: psycopg.Error) -> str:
    primary = fault.diag.message_primary
    return " ".join((primary or str(fault) or type(fault).__name__).split())
