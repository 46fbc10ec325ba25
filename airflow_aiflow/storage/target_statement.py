"""
Read from a statement whether it would end or change the transaction in which an effect's function works.

This is for a clear word to the author. What holds, whatever gets past it: each call sends one statement by the extended
protocol, and a commit that is not ours is refused by the dedup table's own constraint.
"""

from __future__ import annotations

import re
from functools import lru_cache

from psycopg.sql import Composable

from airflow_aiflow.exceptions import EffectError

#: What may stand before a statement's first word; a comment ends at either end of a line, as PostgreSQL reads it.
_BLANK = re.compile(r"(?:[\s;]|--[^\n\r]*)*")
_WORD = re.compile(r"[A-Za-z_]+")
_MARK = re.compile(r"/\*|\*/")

#: Characters of a statement that is remembered: enough for those that bear no data.
MOST_KNOWN = 4096

_ENDS = frozenset({"ABORT", "BEGIN", "COMMIT", "END", "START"})

#: After these alone a connection is as it was before: others may leave a setting, a temporary table or a lock behind.
_LEAVE_NOTHING = frozenset(
    {
        "COPY",
        "DELETE",
        "INSERT",
        "LOCK",
        "MERGE",
        "RELEASE",
        "ROLLBACK",
        "SAVEPOINT",
        "SELECT",
        "UPDATE",
        "VALUES",
        "WITH",
    }
)


def leaves_nothing(query: object) -> bool:
    """
    Say whether a connection may be used again after a statement; refuse one that ends the transaction.

    :param query: text, bytes, or a composition of ``psycopg.sql``.
    :raises EffectError: if it would commit, roll back, begin, or change the transaction.
    :raises TypeError: if it is no statement.
    """
    text = _text(query)
    return _known(text) if len(text) <= MOST_KNOWN else _leaves_nothing(text)


def _leaves_nothing(text: str) -> bool:
    words = _words(text, 4)
    first = words[0] if words else ""
    if first in _ENDS or _in_parts(words):
        raise EffectError(
            f"a transaction's function may not run {' '.join(words[:2])!r}: what it does is committed together with "
            f"the note that it was done, by the flow, or not at all. Raise an error to have it rolled back; SAVEPOINT "
            f"and ROLLBACK TO work. Nothing was committed"
        )
    return first in _LEAVE_NOTHING


#: A function's statement is the same each time; one that refuses is not kept.
_known = lru_cache(maxsize=64)(_leaves_nothing)


def _in_parts(words: list[str]) -> bool:
    """Say whether a statement of several words ends or changes the transaction."""
    match words:
        case ["ROLLBACK", "WORK" | "TRANSACTION", *rest] | ["ROLLBACK", *rest]:
            return rest[:1] != ["TO"]
        case ["PREPARE", "TRANSACTION", *_]:
            return True
        case ["SET", "SESSION", "CHARACTERISTICS", *_]:
            return True
        case ["SET", "LOCAL" | "SESSION", "TRANSACTION", *_] | ["SET", "TRANSACTION", *_]:
            return True
        case ["SET", "CONSTRAINTS", "ALL", *_]:
            return True
    return False


def _text(query: object) -> str:
    if isinstance(query, str):
        return query
    if isinstance(query, bytes):
        return query.decode("latin-1")  # only its first words are read
    if isinstance(query, Composable):
        return query.as_string(None)
    raise TypeError(f"a statement is text, bytes or psycopg.sql, not {type(query).__name__}. Nothing was committed")


def _words(text: str, most: int) -> list[str]:
    words: list[str] = []
    at = 0
    while len(words) < most:
        at = _after_blank(text, at)
        word = _WORD.match(text, at)
        if word is None:
            break
        words.append(word.group().upper())
        at = word.end()
    return words


def _after_blank(text: str, at: int) -> int:
    while True:
        found = _BLANK.match(text, at)
        at = at if found is None else found.end()
        if not text.startswith("/*", at):
            return at
        at = _after_comment(text, at)


def _after_comment(text: str, at: int) -> int:
    """Skip a comment; PostgreSQL's may hold others."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)
