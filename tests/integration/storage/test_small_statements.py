"""Small statements by libpq's own calls: the same values as by the driver's, the same refusals, no wait for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from airflow_aiflow.exceptions import LedgerError, LedgerUnavailableError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import connections
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.hot_statement import hot

#: One parameter twice, and each kind of value.
KINDS: LiteralString = """
select %(text)s::text, %(raw)s::bytea, %(whole)s::bigint, %(real)s::double precision, %(exact)s::numeric,
    %(at)s::timestamptz, %(id)s::uuid, %(none)s::bytea, %(whole)s::bigint + 1
"""

VALUES: dict[str, Any] = {
    "text": "grün '\"\\ $1 %s",
    "raw": bytes(range(256)),
    "whole": -(2**62),
    "real": 1e-7,
    "exact": Decimal("12.345678901234567890"),
    "at": datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "id": UUID(int=2**127 + 4711),
    "none": None,
}


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    """Give an empty database."""
    return postgres_server.fresh_database()


@pytest.fixture
def lent(dsn: str) -> Iterator[Connections]:
    """Give its connections."""
    with closing(Connections(dsn, 1)) as opened:
        yield opened


def test_values_arrive_and_come_back_as_by_the_driver(lent: Connections) -> None:
    [plain] = lent.ask(KINDS, VALUES)
    for _ in range(2):  # prepared, and used again
        [small] = lent.ask(KINDS, VALUES, small=True)
        assert small == plain
        assert [type(value) for value in small] == [type(value) for value in plain]
    assert small[0] == VALUES["text"]
    assert small[5].astimezone(UTC) == VALUES["at"]


def test_a_statement_is_prepared_once(lent: Connections) -> None:
    for number in range(5):
        assert lent.ask("select %(n)s::int", {"n": number}, small=True) == [(number,)]
    assert lent.ask("select count(*) from pg_prepared_statements where name like 'aiflow%%'") == [(1,)]


def test_more_than_the_socket_takes_at_once_arrives(lent: Connections) -> None:
    large = os.urandom(8 * 1024 * 1024)
    assert lent.ask("select length(%(raw)s::bytea), %(raw)s::bytea", {"raw": large}, small=True) == [
        (len(large), large)
    ]


def test_a_refusal_is_the_same_and_leaves_a_connection_that_works(lent: Connections) -> None:
    statement: LiteralString = "select 1 / %(by)s::int"
    for small in (False, True):
        with pytest.raises(LedgerError, match="division by zero"):
            lent.ask(statement, {"by": 0}, small=small)
        assert lent.ask(statement, {"by": 1}, small=small) == [(1,)]
    with pytest.raises(LedgerError, match="syntax error"):
        lent.ask("select from from %(by)s", {"by": 0}, small=True)
    assert lent.ask(statement, {"by": 1}, small=True) == [(1,)]


@pytest.mark.parametrize("small", [False, True])
def test_a_text_with_a_nul_is_refused_and_not_cut(lent: Connections, small: bool) -> None:
    with pytest.raises(LedgerError, match="NUL"):
        lent.ask("select %(text)s::text", {"text": "before\0after"}, small=small)
    assert lent.ask("select %(n)s::int", {"n": 1}, small=small) == [(1,)]


def test_a_connection_that_dies_under_a_statement_is_replaced(lent: Connections, dsn: str) -> None:
    with pytest.raises(LedgerUnavailableError):
        lent.ask("select pg_terminate_backend(pg_backend_pid()), %(n)s::int", {"n": 1}, small=True)
    assert lent.ask("select %(n)s::int", {"n": 2}, small=True) == [(2,)]


def test_a_server_that_falls_silent_is_given_up(lent: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    [(backend,)] = lent.ask("select pg_backend_pid() + %(n)s::int", {"n": 0}, small=True)
    monkeypatch.setattr(connections, "SILENCE", 0.5)
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(LedgerUnavailableError, match=r"no answer for 0\.5 seconds"):
            lent.ask("select %(n)s::int", {"n": 1}, small=True)
        monkeypatch.undo()
        assert lent.ask("select %(n)s::int", {"n": 2}, small=True) == [(2,)]
    finally:
        os.kill(backend, signal.SIGCONT)


@pytest.mark.parametrize("small", [False, True])
def test_a_text_arrives_as_it_is_whatever_its_class_and_the_environment(
    lent: Connections, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    class Name(str, Enum):  # noqa: UP042 - as authors have them
        CHARGE = "grün"

    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    rows = lent.ask("select %(text)s::text, convert_to(%(text)s::text, 'UTF8')", {"text": Name.CHARGE}, small=small)
    assert rows == [("grün", "grün".encode())]


LATE: LiteralString = "insert into late values (%(n)s) returning n"


def _late(dsn: str, body: LiteralString) -> None:
    """Make a table whose rows are looked at by the commit alone."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "create table late (n integer); create function look() returns trigger language plpgsql as $$ begin "
            + body
            + " end $$; create constraint trigger look after insert on late deferrable initially deferred for each row "
            "execute function look()"
        )


@pytest.mark.parametrize("small", [False, True])
def test_a_commit_that_fails_is_told(lent: Connections, dsn: str, small: bool) -> None:
    _late(dsn, "raise exception 'not to be committed';")
    with pytest.raises(LedgerError, match="not to be committed"):
        lent.ask(LATE, {"n": 1}, small=small)
    assert lent.ask("select count(*) from late") == [(0,)]


@pytest.mark.parametrize("small", [False, True])
def test_a_commit_is_not_waited_for_for_ever(
    lent: Connections, dsn: str, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    _late(dsn, "raise notice 'this sends the rows'; perform pg_sleep(3); return null;")
    lent.ask("select %(n)s::int", {"n": 1}, small=small)
    monkeypatch.setattr(connections, "SILENCE", 0.5)
    with pytest.raises(LedgerUnavailableError, match=r"no answer for 0\.5 seconds"):
        lent.ask(LATE, {"n": 1}, small=small)


def test_an_interrupt_after_a_statement_was_prepared_leaves_a_connection_that_works(lent: Connections) -> None:
    class Interrupted(set[bytes]):
        def add(self, label: bytes) -> None:
            raise KeyboardInterrupt

    lent.ask("select 1")
    [connection] = lent._idle
    connection._prepared_here = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        lent.ask("select %(n)s::int", {"n": 1}, small=True)
    connection._prepared_here = set()
    assert lent.ask("select %(n)s::int", {"n": 1}, small=True) == [(1,)]


def test_behind_a_pooler_nothing_is_prepared(lent: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "is_direct", lambda connection: False)
    assert lent.ask("select %(n)s::int", {"n": 1}, small=True) == [(1,)]
    assert lent.ask("select count(*) from pg_prepared_statements") == [(0,)]


def test_parameters_are_numbered_by_name() -> None:
    statement = hot("select %(b)s, %(a)s, %(b)s")
    assert (statement.sql, statement.names) == (b"select $1, $2, $1", ("b", "a"))
    assert statement.label != hot("select %(b)s").label
