"""
A connection to a database that transactional effects change: its owner alone begins and commits.

The dedup row is the first statement, sent together with BEGIN; the row's result is the last one, sent together with
COMMIT. So a transaction costs its author's statements and two round trips. In between the author's function gets an
ordinary cursor of psycopg that refuses to end the transaction.

Not covered: a function that speaks to the server past the cursor, by libpq's own calls on ``cursor.connection.pgconn``,
can roll back and change things outside the transaction. A commit by it is refused by the server even so.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, LiteralString, NoReturn, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

from airflow_aiflow.exceptions import EffectError
from airflow_aiflow.storage.awake import AwakeWait
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.target_statement import leaves_nothing

#: Seconds for asking the server to give up a wait for a racer; it gives up by itself when the connection is gone.
CANCEL_SECONDS = 2.0

#: libpq's codes of a parameter's form.
_TEXT, _BINARY = 0, 1

_Result = TypeVar("_Result")
Values = Sequence[str | bytes | UUID | int | None]


class CommitLostError(psycopg.OperationalError):
    """Say that the connection was lost over the COMMIT: the row alone tells whether it arrived."""


class EffectCursor(psycopg.Cursor[Any]):
    """Be what an effect's function works with: psycopg's own cursor, one statement a call, none that ends it all."""

    def __init__(self, connection: TargetConnection, **options: Any) -> None:
        super().__init__(connection, **options)
        self._act = connection.act

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Execute one statement."""
        self._look_at(query)
        return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        """Execute one statement with several sets of values."""
        self._look_at(query)
        super().executemany(query, params_seq, **options)

    def stream(self, query: Any, params: Any = None, **options: Any) -> Iterator[Any]:
        """Give the rows of one statement as they come."""
        self._look_at(query)
        yield from super().stream(query, params, **options)

    @contextmanager
    def copy(self, statement: Any, params: Any = None, **options: Any) -> Iterator[psycopg.Copy]:
        """Copy rows in or out."""
        self._look_at(statement)
        with super().copy(statement, params, **options) as copy:
            yield copy

    def _look_at(self, query: object) -> None:
        connection: Any = self._conn
        if self._act is None or connection.act is not self._act:
            raise EffectError("the transaction of this cursor has ended: it works inside the function alone")
        if not leaves_nothing(query):
            connection.reusable = False

    def _execute_send(self, query: Any, *, force_extended: bool = False, binary: bool | None = None) -> None:
        # By the simple protocol one call could carry several statements, and end the transaction between two of them.
        super()._execute_send(query, force_extended=True, binary=binary)


class TargetConnection(psycopg.Connection[Any]):
    """Carry one transactional effect at a time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Which effect is at work, and whether the connection may carry another one afterwards.
        self.act: UUID | None = None
        self.reusable = True
        #: Whether prepared statements stay: not behind a pooler.
        self.direct = False
        self._prepared_here: set[str] = set()
        self._answer = AwakeWait(self.fileno())

    def is_quiet(self) -> bool:
        """Say whether nothing has come while it lay idle: whoever ends a connection makes its socket readable."""
        return not self._answer.ready()

    def wait(self, gen: PQGen[_Result], *args: Any, **kwargs: Any) -> _Result:
        """Wait as the driver does, for the first moment awake."""
        return super().wait(self._answer.before(gen), *args, **kwargs)

    def begin(self, act: UUID, values: Values, tick: Callable[[], None]) -> UUID | None:
        """
        Begin, and insert the dedup row; wait while another transaction holds it.

        :param act: names this try.
        :param values: of the statement ``dedup_begin``.
        :param tick: called a few times a second while waiting; what it raises ends the wait.
        :return: the store's id; ``None``: there is such a row, and the transaction is open for a look at it.
        """
        sends: list[Callable[[], None]] = [partial(self.pgconn.send_query_params, b"BEGIN", None)]
        sends += self._sends("dedup_begin", values)
        with self.lock:
            try:
                inserted = self.wait(_ticking(self._exchange(sends), tick))[-1]
            except BaseException:
                with suppress(Exception):
                    self.cancel_safe(timeout=CANCEL_SECONDS)
                raise
        self._prepared_here.add("dedup_begin")
        self.act, self.reusable = act, True
        if inserted.ntuples == 0:
            return None
        stored = inserted.get_value(0, 0)
        return UUID(bytes=stored) if stored is not None else None

    def found(self, identity: bytes) -> tuple[Any, ...] | None:
        """
        Read what the dedup table knows of an effect.

        :param identity: of the effect.
        """
        cursor = psycopg.Cursor(self)
        row: tuple[Any, ...] | None = cursor.execute(
            statement("dedup_found"), {"identity": identity}, prepare=False, binary=True
        ).fetchone()
        return row

    def released(self, identity: bytes, known_at: datetime) -> bool:
        """
        Say whether a person has released an effect since it was known as done.

        :param identity: of the effect.
        :param known_at: when our own ledger wrote it down.
        """
        params = {"identity": identity, "known_at": known_at}
        try:
            cursor = psycopg.Cursor(self).execute(statement("dedup_released"), params, prepare=False)
            return cursor.fetchone() is not None
        except psycopg.Error:
            return False  # made by an earlier release, or the role may not look: what is known as done stays so

    def end(self, values: Values) -> None:
        """
        Write the dedup row's result and commit, together or not at all.

        :param values: of the statement ``dedup_end``.
        :raises CommitLostError: if nobody knows whether the commit arrived.
        :raises psycopg.Error: if the server refused; then nothing was committed.
        """
        sends = self._sends("dedup_end", values)
        sends.append(partial(self.pgconn.send_query_params, b"COMMIT", None))
        with self.lock:
            try:
                committed = self.wait(self._exchange(sends))[-1]
            except psycopg.Error as error:
                if self.pgconn.status != pq.ConnStatus.OK:
                    raise CommitLostError(str(error)) from error
                raise
        self._prepared_here.add("dedup_end")
        if committed.command_status != b"COMMIT":
            raise psycopg.errors.InFailedSqlTransaction("the transaction had failed and was rolled back")
        self.act = None

    def is_whole(self) -> bool:
        """Say whether the transaction is open, and no statement of it has failed."""
        return self.pgconn.transaction_status == pq.TransactionStatus.INTRANS

    def roll_back(self) -> None:
        """Undo everything since ``begin``."""
        self.act = None
        psycopg.Connection.rollback(self)

    def drop(self) -> None:
        """Close; an open transaction is rolled back by the server."""
        self.act = None
        psycopg.Connection.close(self)

    def commit(self) -> None:
        """Refuse."""
        self._refuse("commit()")

    def rollback(self) -> None:
        """Refuse."""
        self._refuse("rollback()")

    def close(self) -> None:
        """Refuse."""
        self._refuse("close()")

    def set_autocommit(self, value: bool) -> None:
        """Refuse."""
        self._refuse("set_autocommit()")

    def _set_autocommit(self, value: bool) -> None:
        self._refuse("autocommit")

    def _refuse(self, what: str) -> NoReturn:
        raise EffectError(
            f"a transaction's function may not call {what} on its connection: what it does is committed together with "
            f"the note that it was done, by the flow, or not at all. Raise an error to have it rolled back. Nothing "
            f"was committed"
        )

    def _sends(self, name: LiteralString, values: Values) -> list[Callable[[], None]]:
        wire = [None if value is None else _wire(value) for value in values]
        forms = [_BINARY if isinstance(value, bytes) else _TEXT for value in values]
        sql = statement(name).encode()
        if not self.direct:
            send = partial(self.pgconn.send_query_params, sql, wire, param_formats=forms, result_format=_BINARY)
            return [send]
        label = name.encode()
        run = partial(self.pgconn.send_query_prepared, label, wire, param_formats=forms, result_format=_BINARY)
        return [run] if name in self._prepared_here else [partial(self.pgconn.send_prepare, label, sql), run]

    def _exchange(self, sends: Sequence[Callable[[], None]]) -> PQGen[list[Any]]:
        """Send statements in one go and read their answers; an error of one keeps the later ones from being run."""
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        for send in sends:
            send()
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        answers: list[Any] = []
        for _ in sends:
            answers += yield from generators.fetch_many(pgconn)
        yield from generators.fetch_many(pgconn)
        pgconn.exit_pipeline_mode()
        for answer in answers:
            if answer.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(answer, encoding="utf-8")
        return answers


def _wire(value: str | bytes | UUID | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _ticking(gen: PQGen[_Result], tick: Callable[[], None]) -> Generator[Any, Any, _Result]:
    """Pass the driver's waiting on; an empty ``ready`` is the tick of its poll."""
    try:
        wish = next(gen)
        while True:
            ready = yield wish
            if not ready:
                tick()
            wish = gen.send(ready)
    except StopIteration as end:
        result: _Result = end.value
        return result
