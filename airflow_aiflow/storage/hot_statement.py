"""
Send a small statement by libpq's own calls.

A step is one statement and an effect two, of a dozen plain values each. The driver's cursor takes longer with them than
the server does: it looks up how each value is written, and waits in steps that others may watch. Here a statement is
numbered once, prepared once a connection, and its values are written as they are. Behind a commit this counts twice:
a processor that has waited for a disk has forgotten the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import LiteralString, NamedTuple

from psycopg import DataError
from psycopg.pq import Format
from psycopg.pq.abc import PGconn

_PARAMETER = re.compile(r"%\((\w+)\)s")

Params = Mapping[str, object]


class HotStatement(NamedTuple):
    """
    Hold a statement as libpq takes it.

    :param label: its name as a prepared statement.
    :param sql: with numbered parameters.
    :param names: of the parameters, in the order of their numbers.
    """

    label: bytes
    sql: bytes
    names: tuple[str, ...]


@cache
def hot(statement: LiteralString) -> HotStatement:
    """
    Number the parameters of a statement. The server finds out their types, as it does for the driver's.

    :param statement: with ``%(name)s`` for plain values alone.
    """
    names = tuple(dict.fromkeys(_PARAMETER.findall(statement)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    sql = _PARAMETER.sub(lambda found: numbers[found[1]], statement)
    return HotStatement(b"aiflow_%x" % (hash(statement) & 0xFFFFFFFFFFFF), sql.encode(), names)


def send(pgconn: PGconn, statement: HotStatement, params: Params) -> None:
    """
    Send a prepared statement with its values.

    :param pgconn: on which it is prepared.
    :param params: texts, bytes, numbers, moments, UUIDs, ``None``.
    :raises psycopg.DataError: if a text holds a NUL.
    """
    values = [params[name] for name in statement.names]
    pgconn.send_query_prepared(
        statement.label,
        [value if value is None or isinstance(value, bytes) else _text(value) for value in values],
        [Format.BINARY if isinstance(value, bytes) else Format.TEXT for value in values],
        Format.BINARY,
    )


def _text(value: object) -> bytes:
    if isinstance(value, datetime):
        value = value.isoformat()
    # Not `str` of a text: that of an enum's member is its name.
    text = (value if isinstance(value, str) else str(value)).encode()
    if b"\0" in text:
        # libpq would take what stands before it for the whole.
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text
