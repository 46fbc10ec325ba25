"""
Ready-made answers to "did it happen?", for ``reconcile=``: an object in S3, a GET by key, a row in a database.

Each is made once, with templates, and asked about an intent. What a template can name: the recorded arguments of the
call, and before them ``key``, ``idempotency_key`` and ``name`` of the effect. Whatever can't be read is ``CannotTell``
and never "no"; no credential and no content of an answer is in its words.

An absence is a word about this moment alone. Where the target takes a request and applies it later, or a database still
runs the statement of a client that died, a probe of your own must say ``StillPending`` or ``CannotTell``.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_aiflow.durable.reconcile import CannotTell, DidNotHappen, Finding, Happened, Intent
from airflow_aiflow.exceptions import EffectOptionError

if TYPE_CHECKING:
    from airflow.sdk import Connection

Reconcile = Callable[[Intent], Finding]

#: Seconds that a database or server gets to answer; the effect's own ``timeout`` ends the question in any case.
PATIENCE = 10.0


def http_get(
    url: str,
    *,
    http_conn_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    result: Callable[[Any], Any] | None = None,
) -> Reconcile:
    """
    Ask a service by a GET: 404, 204 or an empty answer is no, 200 with JSON is yes, anything else can't tell.

    A redirect is not followed, for a log-in page is no answer.

    :param url: a template, such as ``https://pay.example/payouts?key={idempotency_key}``; values are quoted. A path
        where there is a connection.
    :param http_conn_id: a connection of type ``http``, with host, log-in and headers (its extra).
    :param headers: further ones; never put a secret here, it belongs into the connection.
    :param result: makes the effect's result of the answer's JSON; ``None``: the JSON itself.
    :raises EffectOptionError: if the template is wrong.
    """
    _check_template("http_get", url)

    def reconcile(intent: Intent) -> Finding:
        import httpx

        asked = _fill(url, intent, quoted=True)
        options: dict[str, Any] = {"headers": dict(headers or {})}
        if http_conn_id is not None:
            base, own = _http_connection(_connection(http_conn_id))
            asked, options = base + "/" + asked.lstrip("/"), own | {"headers": own["headers"] | options["headers"]}
        try:
            answer = httpx.get(asked, timeout=PATIENCE, follow_redirects=False, **options)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return CannotTell(f"the GET failed with {type(error).__name__}")
        if answer.status_code in (204, 404):
            return DidNotHappen()
        if answer.status_code != 200:
            return CannotTell(f"the GET was answered with HTTP {answer.status_code}")
        if not answer.content.strip():
            return DidNotHappen()
        try:
            found = answer.json()
        except ValueError:
            return CannotTell("the GET was answered with something that is no JSON")
        if found is None or found == [] or found == {}:
            return DidNotHappen()
        return Happened(found if result is None else result(found))

    return reconcile


def sql_row(
    conn_id: str,
    sql: str,
    *,
    parameters: Callable[[Intent], Mapping[str, Any]] | None = None,
    result: Callable[[dict[str, Any]], Any] | None = None,
) -> Reconcile:
    """
    Ask a PostgreSQL database for a row: one is yes, none is no, several can't tell. The transaction is read-only.

    An effect in such a database is better made by ``flow.transaction``, which is never in doubt.

    :param conn_id: a connection of type ``postgres``.
    :param sql: with parameters by name, such as ``select id from payout where ref = %(idempotency_key)s``.
    :param parameters: makes them; ``None``: the recorded arguments, ``key``, ``idempotency_key`` and ``name``.
    :param result: makes the effect's result of the row as a dict; ``None``: the dict itself.
    """

    def reconcile(intent: Intent) -> Finding:
        import psycopg
        from psycopg.rows import dict_row

        from airflow_aiflow.hooks.conninfo import ledger_conninfo

        values = _named(intent) if parameters is None else dict(parameters(intent))
        conninfo = ledger_conninfo(_connection(conn_id))
        try:
            with psycopg.connect(conninfo, connect_timeout=int(PATIENCE), row_factory=dict_row) as connection:
                connection.read_only = True
                rows = connection.execute(sql, values).fetchmany(2)
        except psycopg.Error as error:
            return CannotTell(f"the query failed with {type(error).__name__} {error.sqlstate or ''}".strip())
        if not rows:
            return DidNotHappen()
        if len(rows) > 1:
            return CannotTell("the query gave more than one row")
        return Happened(rows[0] if result is None else result(rows[0]))

    return reconcile


def s3_object(
    key: str,
    *,
    conn_id: str = "aiflow_artifacts",
    bucket: str | None = None,
    sha256: str | None = None,
    result: Callable[[Intent], Any] | None = None,
) -> Reconcile:
    """
    Ask an S3 server for an object: with the right bytes it is yes, absent it is no, with other bytes it can't tell.

    :param key: a template of the object's name.
    :param conn_id: a connection of type ``minio`` or ``aws``.
    :param bucket: a template; ``None``: the connection's bucket.
    :param sha256: a template of the hash in hexadecimal digits, such as ``{digest}`` where that is an argument of the
        call; the object is read and hashed. ``None``: that it is there is enough.
    :param result: makes the effect's result; ``None``: it is None.
    :raises EffectOptionError: if a template is wrong.
    """
    for template in (key, bucket or "", sha256 or ""):
        _check_template("s3_object", template)

    def reconcile(intent: Intent) -> Finding:
        from airflow_aiflow.exceptions import ArtifactError
        from airflow_aiflow.storage.artifacts_connection import settings_from_connection
        from airflow_aiflow.storage.s3_object import object_hash

        settings = settings_from_connection(_connection(conn_id))
        place = settings.bucket if bucket is None else _fill(bucket, intent)
        wanted = None if sha256 is None else _fill(sha256, intent).lower()
        try:
            found = object_hash(settings, place, _fill(key, intent), read=wanted is not None, patience=PATIENCE)
        except ArtifactError as error:
            return CannotTell(f"the S3 server could not be asked: {type(error).__name__}")
        if found is None:
            return DidNotHappen()
        if wanted is not None and found != wanted:
            return CannotTell("the object is there, with other bytes")
        return Happened(None if result is None else result(intent))

    return reconcile


def _connection(conn_id: str) -> Connection:
    from airflow_aiflow.hooks.aiflow import existing_connection

    return existing_connection(conn_id, "asked by reconcile=", "")


def _http_connection(connection: Connection) -> tuple[str, dict[str, Any]]:
    host = connection.host or ""
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    if connection.port:
        base = f"{base}:{connection.port}"
    extra = connection.extra_dejson
    # What the http provider reads itself is no header.
    own = {"timeout", "allow_redirects", "proxies", "proxy", "verify", "cert", "stream", "trust_env", "max_redirects"}
    headers = {name: str(value) for name, value in extra.items() if name not in own}
    options: dict[str, Any] = {"headers": headers}
    if connection.login:
        options["auth"] = (connection.login, connection.password or "")
    if isinstance(extra.get("verify"), bool):
        options["verify"] = extra["verify"]
    return base.rstrip("/"), options


def _named(intent: Intent) -> dict[str, Any]:
    return intent.request | {"key": intent.key, "idempotency_key": intent.idempotency_key, "name": intent.name}


def _fill(template: str, intent: Intent, *, quoted: bool = False) -> str:
    values = _named(intent)
    pieces: list[str] = []
    for text, field, _, _ in string.Formatter().parse(template):
        pieces.append(text)
        if field is not None:
            if field not in values:
                raise LookupError(f"the template names {field!r}; there are {', '.join(sorted(values))}")
            value = str(values[field])
            pieces.append(quote(value, safe="") if quoted else value)
    return "".join(pieces)


def _check_template(function: str, template: str) -> None:
    """Refuse, while the DAG is parsed, what would look into an argument or can't be read."""
    try:
        parts: Sequence[Any] = list(string.Formatter().parse(template))
    except ValueError as error:
        raise EffectOptionError(f"{function}(): the template {template!r} can't be read: {error}") from None
    for _, field, spec, conversion in parts:
        if field is not None and (not field.isidentifier() or spec or conversion):
            raise EffectOptionError(
                f"{function}(): the template {template!r} holds {{{field}}}; plain names alone are filled in, such as "
                f"{{idempotency_key}}, {{key}} or an argument of the call"
            )
