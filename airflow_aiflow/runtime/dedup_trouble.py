"""What can be wrong with a target and its dedup table, with the way out; nothing is changed in any such case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.exceptions import DedupTableError
from airflow_aiflow.runtime.doubt_form import shown_key

if TYPE_CHECKING:
    import psycopg

    from airflow_aiflow.storage.target_connection import TargetConnection

#: The form of the dedup table that this release reads and writes.
DEDUP_VERSION = 1


def place(conn_id: str, store_id: UUID) -> str:
    """
    Name the place where an effect was done, as our own record keeps it.

    :param conn_id: through which connection.
    :param store_id: in which database.
    """
    return f"{conn_id}/{store_id}"


def is_missing(error: psycopg.Error) -> bool:
    """
    Say whether there is no dedup table.

    :param error: of the first statement of a transaction.
    """
    from airflow_aiflow.storage.target import MISSING

    return isinstance(error, MISSING)


def is_clash(error: BaseException) -> bool:
    """
    Say whether the server broke a transaction off for the sake of another one.

    :param error: of any statement.
    """
    from psycopg import errors

    return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected)


def may_pass(error: BaseException, connection: TargetConnection) -> bool:
    """
    Say whether a transaction was broken off for a reason that may have gone by now.

    :param error: of any statement before the commit's answer.
    :param connection: that carried it.
    """
    from psycopg import OperationalError

    return is_clash(error) or (isinstance(error, OperationalError) and connection.broken)


def make_table(conn_id: str, conninfo: str) -> None:
    """
    Make the dedup table at its first use.

    :param conn_id: for messages.
    :param conninfo: the target's address.
    :raises DedupTableError: if the role may not, or the database takes no writes.
    """
    from psycopg import errors

    from airflow_aiflow.storage.target import install

    try:
        install(conninfo)
    except errors.InsufficientPrivilege as refused:
        raise DedupTableError(
            f"{_table(conn_id)} is missing and this role may not make it ({_said(refused)}): {_way(conn_id)}"
        ) from refused
    except errors.ReadOnlySqlTransaction as refused:
        raise _takes_no_writes(conn_id, refused) from refused


def refuse_table(conn_id: str, error: psycopg.Error) -> None:
    """
    Raise, where a transaction could not begin for its dedup table's sake.

    :param conn_id: for messages.
    :param error: of the first statement.
    :raises DedupTableError: with the way out.
    """
    from psycopg import errors

    from airflow_aiflow.storage.target import MISSING, OTHER_FORM

    if isinstance(error, errors.InsufficientPrivilege):
        raise DedupTableError(
            f"{_table(conn_id)} may not be used by this role ({_said(error)}): {_way(conn_id)}"
        ) from error
    if isinstance(error, errors.ReadOnlySqlTransaction):
        raise _takes_no_writes(conn_id, error) from error
    if isinstance(error, (*MISSING, *OTHER_FORM)):
        raise DedupTableError(
            f"{_table(conn_id)} is not as this release makes it ({_said(error)}): {_way(conn_id)}"
        ) from error


def _takes_no_writes(conn_id: str, error: psycopg.Error) -> DedupTableError:
    return DedupTableError(
        f"the database behind connection '{conn_id}' takes no writes ({_said(error)}): it is a standby, or its role or "
        f"database is set to read only. Point the connection to the primary. Nothing was changed"
    )


def other_form(conn_id: str, found: tuple[Any, ...] | None) -> DedupTableError:
    """
    Say that the dedup table is one of another release, or damaged.

    :param conn_id: for messages.
    :param found: the store's row.
    """
    form = "lost the row that names its store" if found is None else f"has form {found[1]}"
    return DedupTableError(f"{_table(conn_id)} {form}; this release knows form {DEDUP_VERSION}. Nothing was changed")


def another_store(effect: EffectId, conn_id: str, known: StepRecord, store_id: UUID) -> DedupTableError:
    """
    Say that our own ledger knows an effect as done, and the target does not.

    :param effect: the effect.
    :param conn_id: through which the target is reached.
    :param known: our own record.
    :param store_id: of the database that is there now.
    """
    done = f"effect '{effect.name}' key {shown_key(effect)} was done {known.ended_at:%Y-%m-%d %H:%M}"
    if known.unit != place(conn_id, store_id):
        return DedupTableError(
            f"{done} in {known.unit}, and connection '{conn_id}' leads to the store {store_id} now: it points to "
            f"another database. Point it back, or give the effect another key. Nothing was changed"
        )
    return DedupTableError(
        f"{done} in the database behind connection '{conn_id}', which knows nothing of it any more: its dedup row was "
        f"deleted, or the database was restored from an older backup. Look at it, then give the effect another key if "
        f"it is to be done again. Nothing was changed"
    )


def _table(conn_id: str) -> str:
    return f"the dedup table behind connection '{conn_id}'"


def _way(conn_id: str) -> str:
    return f"run `aiflow db install-dedup {conn_id}` once, with a role that may; nothing was changed"


def _said(error: psycopg.Error) -> str:
    return str(error.diag.message_primary or error)
