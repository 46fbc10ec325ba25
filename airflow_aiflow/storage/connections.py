"""
Lend connections to the ledger's database, safe behind a transaction-pooling PgBouncer.

Every statement is a transaction of its own (autocommit), and no session state is set: behind a pooler two statements
may meet two servers. Only a connection to the server itself prepares statements, which saves a third of a commit.
A connection that died while it lay idle is seen without a round trip, and a statement that hears nothing for
``SILENCE`` ends with its connection, also where the network is up and the server is not.
"""

from __future__ import annotations

import select
import time
from collections.abc import Generator, Mapping
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.storage.postgres_faults import address, wrap
from airflow_aiflow.storage.rows import Row

#: Seconds without a byte after which a statement is given up: a heartbeat's interval, so that a lease of three
#: intervals survives one silence. The largest statements answer within a second.
SILENCE = 10.0

#: Seconds to wait for a free connection, or for a new one: what the caller does next is to try again for a minute.
LEND_TIMEOUT = 3.0

#: What a connection gets unless its address says otherwise: a dead peer is noticed by the kernel, too.
DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "fallback_application_name": "aiflow",
}

#: Uses of a statement after which it is prepared, on a direct connection: a short task does not earn it back.
PREPARE_AFTER = 5

_Result = TypeVar("_Result")
Params = Mapping[str, object]


class SilenceError(psycopg.OperationalError):
    """Say that the server gave no sign of life while a statement waited."""


class BoundedConnection(psycopg.Connection[Row]):
    """Be a connection whose statements do not wait for ever."""

    def wait(self, gen: PQGen[_Result], *args: Any, **kwargs: Any) -> _Result:
        """Wait as the driver does, at most ``SILENCE`` between two signs of life."""
        return super().wait(_bounded(gen), *args, **kwargs)


def _bounded(gen: PQGen[_Result]) -> Generator[Any, Any, _Result]:
    """Pass the driver's waiting on and watch it: an empty ``ready`` is the tick of its poll."""
    try:
        wish = next(gen)
        deadline = time.monotonic() + SILENCE
        while True:
            ready = yield wish
            if ready:
                deadline = time.monotonic() + SILENCE
            elif time.monotonic() > deadline:
                raise SilenceError(f"no answer for {SILENCE:g} seconds")
            wish = gen.send(ready)
    except StopIteration as end:
        result: _Result = end.value
        return result


def is_alive(connection: psycopg.Connection[Row]) -> bool:
    """
    Say whether an idle connection still stands: whoever ends it makes its socket readable.

    :param connection: one that lies idle.
    """
    if connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def is_direct(connection: psycopg.Connection[Row]) -> bool:
    """
    Say whether the server process that answers is the one that this connection was opened to.

    A pooler gives a process number of its own at the start; behind it a prepared statement may meet another server.

    :param connection: any.
    """
    [(answering,)] = connection.execute("select pg_backend_pid()").fetchall()
    return bool(answering == connection.info.backend_pid)


def _configure(connection: psycopg.Connection[Row]) -> None:
    connection.prepare_threshold = PREPARE_AFTER if is_direct(connection) else None


def _check(connection: psycopg.Connection[Row]) -> None:
    if not is_alive(connection):
        # It may be a mere notice: ask for real.
        ConnectionPool.check_connection(connection)


class Connections:
    """
    Be a small pool.

    :param conninfo: a URI or ``key=value`` pairs.
    :param size: most connections at once.
    :raises AiflowConfigError: if the address is none.
    """

    def __init__(self, conninfo: str, size: int) -> None:
        self.where = address(conninfo)
        self._conninfo = make_conninfo("", **(dict(DEFAULTS) | conninfo_to_dict(conninfo)))
        self._pool = ConnectionPool(
            self._conninfo,
            connection_class=BoundedConnection,
            kwargs={"autocommit": True, "prepare_threshold": None},
            min_size=1,
            max_size=size,
            open=False,
            name="aiflow-ledger",
            timeout=LEND_TIMEOUT,
            # Give up at once: the next caller tries anew, without waiting out a back-off.
            reconnect_timeout=0,
            num_workers=1,
            configure=_configure,
            check=_check,
        )
        self._pool.open()

    def ask(self, statement: LiteralString, params: Params | None = None) -> list[Row]:
        """
        Carry a statement out and commit it.

        :param statement: the SQL.
        :param params: its values.
        :return: its rows.
        :raises LedgerUnavailableError: if the database can't be asked; the statement may have been carried out.
        :raises LedgerSchemaError: if a table is missing or is another.
        :raises LedgerError: if the database refuses a value.
        """
        try:
            connection = self._lend()
            try:
                cursor = connection.execute(statement, params, binary=True)
                return cursor.fetchall() if cursor.description is not None else []
            finally:
                if connection.pgconn.transaction_status != TransactionStatus.IDLE:
                    connection.close()
                self._pool.putconn(connection)
        except psycopg.Error as fault:
            raise wrap(fault, self.where) from fault

    def _lend(self) -> BoundedConnection:
        try:
            return self._pool.getconn()
        except PoolClosed as closed:
            raise LedgerUnavailableError(f"{self.where} was closed by this process") from closed
        except (PoolTimeout, TooManyRequests):
            # The pool does not say why: ask without it.
            psycopg.connect(self._conninfo).close()
            raise LedgerUnavailableError(
                f"{self.where} answers, but all {self._pool.max_size} connections of this process are at work for more "
                f"than {LEND_TIMEOUT:g} seconds"
            ) from None

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()
