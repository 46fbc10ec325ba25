"""
Lend connections to the ledger's database, safe behind a transaction-pooling PgBouncer.

Every statement is a transaction of its own (autocommit), and no session state is set: behind a pooler two statements
may meet two servers. Only a connection to the server itself prepares statements, which saves a third of a commit.
A connection that died while it lay idle is seen without a round trip, and a statement that hears nothing for
``SILENCE`` ends with its connection, also where the network is up and the server is not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.storage.awake import AwakeWait
from airflow_aiflow.storage.hot_statement import Params as Params
from airflow_aiflow.storage.hot_statement import hot, send
from airflow_aiflow.storage.postgres_faults import address, wrap
from airflow_aiflow.storage.rows import Row

#: Seconds without a byte after which a statement is given up: a heartbeat's interval, so that a lease of three
#: intervals survives one silence. The largest statements answer within a second.
SILENCE = 10.0

#: Seconds to wait for a free connection: what the caller does next is to try again for a minute.
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


class SilenceError(psycopg.OperationalError):
    """Say that the server gave no sign of life while a statement waited."""


class BoundedConnection(psycopg.Connection[Row]):
    """Be a connection whose statements do not wait for ever; its one cursor and wait are made once, as they are hot."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.binary_cursor = self.cursor(binary=True)
        #: What ``carry_out`` prepared, and what reads its rows.
        self._prepared_here: set[bytes] = set()
        self._reader = Transformer(self)
        self._answer = AwakeWait(self.fileno())

    def wait(self, gen: PQGen[_Result], *args: Any, **kwargs: Any) -> _Result:
        """Wait as the driver does, at most ``SILENCE`` between two signs of life."""
        return super().wait(_bounded(gen), *args, **kwargs)

    @property
    def keeps(self) -> bool:
        """Whether what is prepared stays: not behind a pooler."""
        return self.prepare_threshold is not None

    def carry_out(self, statement: LiteralString, params: Params) -> list[Row]:
        """
        Carry out a statement that is so small that the driver's own time counts.

        :param statement: of plain values alone; see ``hot_statement``.
        :param params: its values.
        """
        prepared = hot(statement)
        with self.lock:
            if prepared.label not in self._prepared_here:
                self.pgconn.send_prepare(prepared.label, prepared.sql)
                with suppress(psycopg.errors.DuplicatePreparedStatement):  # an interrupt came before it was noted
                    self._result()
                self._prepared_here.add(prepared.label)
            send(self.pgconn, prepared, params)
            result = self._result()
            if not result.ntuples:
                return []
            self._reader.set_pgresult(result)
            return self._reader.load_rows(0, result.ntuples, tuple)

    def _result(self) -> PGresult:
        """Wait for the end of what was sent, at most ``SILENCE`` between two signs of life, and give its result."""
        pgconn = self.pgconn
        if pgconn.flush():
            self.wait(generators.send(pgconn))  # more than the socket takes at once
        results = []
        while (result := self._next_result()) is not None:
            results.append(result)
        # The commit comes after the rows: a statement that gave some may still be refused.
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result, encoding="utf-8")
        return results[0]

    def _next_result(self) -> PGresult | None:
        pgconn = self.pgconn
        while pgconn.is_busy():
            if not self._answer.until_ready(SILENCE):
                raise SilenceError(f"no answer for {SILENCE:g} seconds")
            pgconn.consume_input()
        return pgconn.get_result()

    def is_quiet(self) -> bool:
        """Say whether nothing has come while it lay idle: whoever ends a connection makes its socket readable."""
        return not self._answer.ready()


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


def is_direct(connection: psycopg.Connection[Row]) -> bool:
    """
    Say whether the server process that answers is the one that this connection was opened to.

    A pooler gives a process number of its own at the start; behind it a prepared statement may meet another server.

    :param connection: any.
    """
    [(answering,)] = connection.execute("select pg_backend_pid()").fetchall()
    return bool(answering == connection.info.backend_pid)


class Connections:
    """
    Lend up to so many connections, the last one used first.

    No pool of the driver's: that one deals its connections out in turn, so that each is cold (a tenth of a commit's
    time), waits and backs off in threads of its own where the caller should hear at once why a server can't be reached.

    :param conninfo: a URI or ``key=value`` pairs.
    :param size: most connections at once.
    :raises AiflowConfigError: if the address is none.
    """

    def __init__(self, conninfo: str, size: int) -> None:
        self.where = address(conninfo)
        #: What libpq takes, the password in it. Texts go as UTF-8, whatever the environment or the database has.
        self.conninfo = make_conninfo("", **(dict(DEFAULTS) | conninfo_to_dict(conninfo) | {"client_encoding": "UTF8"}))
        self._size = size
        #: A stack; append and pop are atomic, so that the common case needs no lock.
        self._idle: list[BoundedConnection] = []
        #: Guards the two below.
        self._returned = threading.Condition()
        self._open = 0
        self._waiting = 0
        self._closed = False

    def ask(self, statement: LiteralString, params: Params | None = None, *, small: bool = False) -> list[Row]:
        """
        Carry a statement out and commit it.

        :param statement: the SQL; it returns rows, though perhaps none.
        :param params: its values.
        :param small: whether the driver's own time counts; see ``hot_statement``.
        :return: its rows.
        :raises LedgerUnavailableError: if the database can't be asked; the statement may have been carried out.
        :raises LedgerSchemaError: if a table is missing or is another.
        :raises LedgerError: if the database refuses a value.
        """
        try:
            connection = self._take()
            try:
                if small and params is not None and connection.keeps:
                    return connection.carry_out(statement, params)
                cursor = connection.binary_cursor
                cursor.execute(statement, params)
                return cursor.fetchall()
            finally:
                self._give_back(connection)
        except psycopg.Error as fault:
            raise wrap(fault, self.where) from fault

    def _take(self) -> BoundedConnection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                if self._may_open():
                    return self._connect()
                continue
            if connection.is_quiet():
                return connection
            self._drop(connection)

    def _may_open(self) -> bool:
        """Reserve a place for a new connection, or wait until one comes back."""
        with self._returned:
            if self._closed:
                raise LedgerUnavailableError(f"{self.where} was closed by this process")
            if self._open < self._size:
                self._open += 1
                return True
            self._waiting += 1
            try:
                # Looked at again: who gave one back before it could see us waiting did not tell us.
                if self._idle or self._returned.wait(LEND_TIMEOUT):
                    return False
            finally:
                self._waiting -= 1
        raise LedgerUnavailableError(
            f"{self.where} answers slowly: all {self._size} connections of this process are at work for more than "
            f"{LEND_TIMEOUT:g} seconds"
        )

    def _connect(self) -> BoundedConnection:
        try:
            connection = BoundedConnection.connect(self.conninfo, autocommit=True, prepare_threshold=None)
            if is_direct(connection):
                connection.prepare_threshold = PREPARE_AFTER
        except BaseException:
            self._leave()
            raise
        return connection

    def _give_back(self, connection: BoundedConnection) -> None:
        if self._closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            self._drop(connection)
            return
        self._idle.append(connection)
        if self._waiting:
            with self._returned:
                self._returned.notify()

    def _drop(self, connection: BoundedConnection) -> None:
        connection.close()
        self._leave()

    def _leave(self) -> None:
        with self._returned:
            self._open -= 1
            self._returned.notify()

    def close(self) -> None:
        """Close every connection that lies idle, and each of the others after its statement."""
        with self._returned:
            self._closed = True
        while self._idle:
            self._drop(self._idle.pop())
