"""
The databases that transactional effects change: their connections, and their dedup table.

A connection is kept for the attempt's next transaction, unless a statement may have left something behind on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import LiteralString

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from airflow_aiflow.exceptions import AiflowConfigError, DedupTableError
from airflow_aiflow.storage.connections import DEFAULTS, PREPARE_AFTER, is_direct
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.target_connection import EffectCursor, TargetConnection

#: The dedup table's form, as ``dedup_install.sql`` makes it.
VERSION = 1

#: Errors that say that the dedup table is not there.
MISSING = (errors.UndefinedTable, errors.InvalidSchemaName)

#: Errors that say that the table is there in another form than ours.
OTHER_FORM = (errors.UndefinedColumn, errors.WrongObjectType)

#: What a role needs to have effects here.
GRANTS: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA aiflow_dedup TO {}",
    "GRANT SELECT ON aiflow_dedup.store TO {}",
    "GRANT SELECT, INSERT, UPDATE ON aiflow_dedup.effect TO {}",
    "GRANT SELECT ON aiflow_dedup.released TO {}",
)


def target_address(conninfo: str) -> str:
    """
    Complete the address of a target.

    :param conninfo: a URI or ``key=value`` pairs.
    :raises AiflowConfigError: if it is neither.
    """
    try:
        parts = dict(DEFAULTS) | conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        raise AiflowConfigError(
            "the target's address is neither a postgresql:// URI nor key=value pairs that PostgreSQL knows"
        ) from None
    return make_conninfo("", **(parts | {"client_encoding": "UTF8"}))


class Targets:
    """
    Lend connections to targets, by connection id. Safe for use from several threads.

    :param address: gives the address behind a connection id; asked once for each.
    """

    def __init__(self, address: Callable[[str], str]) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._addresses: dict[str, str] = {}
        self._idle: dict[str, list[TargetConnection]] = {}
        self._closed = False

    def take(self, conn_id: str) -> TargetConnection:
        """
        Lend a connection.

        :param conn_id: whose target.
        :raises psycopg.OperationalError: if it can't be reached.
        """
        while True:
            with self._lock:
                idle = self._idle.setdefault(conn_id, [])
                connection = idle.pop() if idle else None
            if connection is None:
                return connect(self.address(conn_id))
            if connection.is_quiet():
                return connection
            connection.drop()

    def address(self, conn_id: str) -> str:
        """
        Give the complete address behind a connection id.

        :param conn_id: whose target.
        """
        with self._lock:
            known = self._addresses.get(conn_id)
        if known is None:
            known = target_address(self._address(conn_id))
            with self._lock:
                self._addresses[conn_id] = known
        return known

    def give_back(self, conn_id: str, connection: TargetConnection) -> None:
        """
        Take a connection back.

        :param conn_id: whose target it is.
        :param connection: outside a transaction, else it is closed.
        """
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        with self._lock:
            if idle and connection.reusable and not self._closed:
                self._idle[conn_id].append(connection)
                return
        connection.drop()

    def close(self) -> None:
        """Close what lies idle, and the others when they come back."""
        with self._lock:
            self._closed = True
            idle = [each for several in self._idle.values() for each in several]
            self._idle.clear()
        for connection in idle:
            connection.drop()


def connect(conninfo: str) -> TargetConnection:
    """
    Open a connection to a target.

    :param conninfo: a complete address.
    """
    connection = TargetConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
    try:
        if is_direct(connection):
            connection.direct = True
            connection.prepare_threshold = PREPARE_AFTER
            # An open transaction of a machine that is gone keeps its row: by default for two hours.
            connection.execute(statement("dedup_session"))
        connection.cursor_factory = EffectCursor
    except BaseException:
        connection.drop()
        raise
    return connection


def install(conninfo: str, grant_to: Sequence[str] = ()) -> str:
    """
    Make the dedup table where it is not there yet; a table that is there is left as it is.

    :param conninfo: a complete address.
    :param grant_to: roles that are to have effects.
    :return: the store's id.
    :raises psycopg.Error: if the role may not, or the database can't be reached.
    :raises DedupTableError: if there is a table of another form.
    """
    with psycopg.connect(conninfo) as connection:
        connection.execute(statement("dedup_install"))
        found = connection.execute(statement("dedup_store")).fetchone()
        for role in grant_to:
            for right in GRANTS:
                connection.execute(sql.SQL(right).format(sql.Identifier(role)))
    if found is None or found[1] != VERSION:
        raise DedupTableError(
            f"schema aiflow_dedup is there in form {None if found is None else found[1]}, this release knows {VERSION}"
        )
    return str(found[0])
