"""
Which ledger a command is about: ``--dsn``, else the connection in the environment, else the embedded stack's.

The environment holds Airflow's own forms of a connection, a URI or a JSON object; both are read here without Airflow,
whose import takes longer than what the command does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_aiflow.cli.home_option import command_line
from airflow_aiflow.exceptions import AiflowConfigError

VARIABLE = "AIRFLOW_CONN_AIFLOW_LEDGER"

#: The file in the stack's folder that tells other programs how to reach it.
ENV_FILE = "env"

#: Airflow writes an extra that is no flat list of texts as JSON under this name.
JSON_EXTRA = "__extra__"


def dsn_option() -> argparse.ArgumentParser:
    """Give a parent parser with ``--dsn``."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--dsn",
        metavar="ADDRESS",
        help=f"the ledger: a postgresql:// URI or key=value pairs (default: {VARIABLE}, else the stack in --home)",
    )
    return parent


def find_ledger(options: argparse.Namespace) -> str:
    """
    Find the ledger's address.

    :param options: with ``dsn`` and ``home``.
    :return: what libpq takes.
    :raises AiflowConfigError: if there is none, or it can't be read.
    """
    if options.dsn:
        return str(options.dsn)
    if value := os.environ.get(VARIABLE):
        return conninfo_of(value, VARIABLE)
    from airflow_aiflow.local.env_file import read_env

    path = options.home / ENV_FILE
    if value := read_env(path).get(VARIABLE):
        return conninfo_of(value, f"{VARIABLE} in {path}")
    raise AiflowConfigError(f"which ledger? Give --dsn, set {VARIABLE}, or start the embedded stack by `aiflow up`")


@contextlib.contextmanager
def stack_in_mind(options: argparse.Namespace) -> Iterator[None]:
    """
    Say that the stack is not running where that is why its ledger does not answer.

    :param options: with ``dsn`` and ``home``.
    :raises AiflowConfigError: instead of the ledger's silence.
    """
    from airflow_aiflow.exceptions import LedgerUnavailableError

    try:
        yield
    except LedgerUnavailableError as error:
        from airflow_aiflow.local.stack_status import owner

        if options.dsn or os.environ.get(VARIABLE) or owner(options.home) is not None:
            raise
        raise AiflowConfigError(
            f"the stack in {options.home} is not running: start it by `{command_line('up', options.home)}`, or say "
            f"which ledger is meant by --dsn or {VARIABLE}"
        ) from error


def conninfo_of(text: str, where: str) -> str:
    """
    Read one of Airflow's two forms of a connection.

    :param text: a URI or a JSON object.
    :param where: where it stands, for messages, which never show it: it holds a password.
    :raises AiflowConfigError: if it is neither, or of another type.
    """
    from airflow_aiflow.storage.conninfo import build_conninfo

    return build_conninfo(where, **connection_fields(text, where))


def connection_fields(text: str, where: str) -> dict[str, Any]:
    """
    Take one of Airflow's two forms of a connection apart.

    :param text: a URI or a JSON object.
    :param where: where it stands, for messages, which never show it: it holds a password.
    :return: ``conn_type, host, port, schema, login, password, extra``.
    :raises AiflowConfigError: if it is neither.
    """
    return _of_json(text, where) if text.lstrip().startswith("{") else _of_uri(text, where)


def _of_json(text: str, where: str) -> dict[str, Any]:
    fields = _parsed(text, where)
    extra = fields.get("extra") or {}
    return {name: fields.get(name) for name in ("conn_type", "host", "port", "schema", "login", "password")} | {
        "extra": _parsed(extra, where) if isinstance(extra, str) else extra
    }


def _of_uri(text: str, where: str) -> dict[str, Any]:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise AiflowConfigError(f"{where} is no URI: a port or host in it can't be read") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "conn_type": {"postgresql": "postgres"}.get(parts.scheme, parts.scheme) or None,
        "host": _decoded(parts.hostname),
        "port": port,
        "schema": _decoded(parts.path.removeprefix("/")),
        "login": _decoded(parts.username),
        "password": _decoded(parts.password),
        "extra": _parsed(query[JSON_EXTRA], where) if JSON_EXTRA in query else query,
    }


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise AiflowConfigError(f"{where}: not JSON at character {error.pos}: {error.msg}") from None
