"""
Read the SQL statements of ``sql/``, one a file, once each.

A statement is a file of this package or a literal in the code, never put together from parts: ``LiteralString`` says so
to the type checker. Values go in as ``%(name)s`` only; every name is qualified, as there is no search path to rely on.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import LiteralString


@cache
def statement(name: str) -> LiteralString:
    """
    Give a statement without its comment lines.

    :param name: the file's name without ``.sql``.
    """
    text = (files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    lines = (line.partition("--")[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)
