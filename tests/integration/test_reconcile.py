"""The ready-made probes against real servers: what is there, what is not, and what can't be told."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.reconcile import CannotTell, DidNotHappen, Finding, Happened, Intent
from airflow_aiflow.exceptions import EffectOptionError
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.reconcile import http_get, s3_object, sql_row
from airflow_aiflow.storage.s3_requests import make_client, make_http_client
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.integration.durable.targets import answering, cut, free_port, read_request, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def intent(**request: Any) -> Intent:
    return Intent("pay", "billing/4711", "af_1", request, datetime(2026, 1, 1, tzinfo=UTC), 1)


# --- http -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (answering(200, '{"id": 7}'), Happened({"id": 7})),
        (answering(200, "[1]"), Happened([1])),
        (answering(200, "[]"), DidNotHappen()),
        (answering(200, "{}"), DidNotHappen()),
        (answering(200, "null"), DidNotHappen()),
        (answering(200, ""), DidNotHappen()),
        (answering(204, ""), DidNotHappen()),
        (answering(404), DidNotHappen()),
        (answering(200, "<html>log in</html>"), CannotTell("the GET was answered with something that is no JSON")),
        (answering(302, "", Location="http://127.0.0.1/login"), CannotTell("the GET was answered with HTTP 302")),
        (answering(401), CannotTell("the GET was answered with HTTP 401")),
        (answering(500), CannotTell("the GET was answered with HTTP 500")),
        (answering(202), CannotTell("the GET was answered with HTTP 202")),
        (cut, CannotTell("the GET failed with RemoteProtocolError")),
        (answering(200, '{"id"', size=50), CannotTell("the GET failed with RemoteProtocolError")),
    ],
)
def test_a_get_by_key(answer: Any, wanted: Finding) -> None:
    with target(answer) as port:
        assert http_get(f"http://127.0.0.1:{port}/payouts?key={{idempotency_key}}")(intent()) == wanted


def test_a_get_to_a_server_that_is_away_can_not_tell() -> None:
    assert http_get(f"http://127.0.0.1:{free_port()}/x")(intent()) == CannotTell("the GET failed with ConnectError")


def test_what_is_filled_into_an_address_is_quoted_and_the_connection_gives_the_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads: list[str] = []

    def answer(connection: Any) -> None:
        heads.append(read_request(connection).decode())
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"id": "R7"}')

    with target(answer) as port:
        extra = {"conn_type": "http", "host": "127.0.0.1", "port": port, "login": "me", "password": "hunter2"}
        monkeypatch.setenv("AIRFLOW_CONN_PAY_API", json.dumps(extra | {"extra": {"X-Team": "a", "timeout": 3}}))
        probe = http_get(
            "/v1/{key}?ref={idempotency_key}&to={to}",
            http_conn_id="pay_api",
            headers={"Accept": "application/json"},
            result=lambda found: found["id"],
        )
        assert probe(intent(to="ann & bob", key="an argument")) == Happened("R7")
    (head,) = heads
    assert head.startswith("GET /v1/billing%2F4711?ref=af_1&to=ann%20%26%20bob HTTP/1.1")
    assert "Authorization: Basic bWU6aHVudGVyMg==" in head
    assert "X-Team: a" in head
    assert "timeout" not in head.lower()


@pytest.mark.parametrize("template", ["/{", "/{0}", "/{order.id}", "/{key!r}", "/{key:>9}", "/{}"])
def test_a_template_that_looks_into_things_is_refused_at_parse(template: str) -> None:
    with pytest.raises(EffectOptionError, match="template"):
        http_get(template)
    with pytest.raises(EffectOptionError, match="template"):
        s3_object(template)


def test_a_name_that_the_intent_does_not_have_is_named() -> None:
    with pytest.raises(LookupError, match="names 'order'; there are idempotency_key, key, name, to"):
        http_get("http://127.0.0.1/{order}")(intent(to="a"))


# --- sql --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def payouts(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the DSN of a database with payouts, which the connection ``books`` reaches."""
    dsn = postgres_server.fresh_database()
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    fields = {"host": "host", "port": "port", "schema": "dbname", "login": "user", "password": "password"}
    connection = {name: parts.get(field) for name, field in fields.items()}
    monkeypatch.setenv("AIRFLOW_CONN_BOOKS", json.dumps({"conn_type": "postgres"} | connection))
    with psycopg.connect(dsn) as session:
        session.execute("create table payout (ref text, number text, cents int)")
        session.execute("insert into payout values ('af_1', '4711', 100), ('af_2', '4712', 200), ('af_2', '4712', 200)")
    return dsn


FIND = "select number, cents from payout where ref = %(idempotency_key)s"


def test_a_row_by_the_intents_values(payouts: str) -> None:
    assert sql_row("books", FIND)(intent()) == Happened({"number": "4711", "cents": 100})
    by_number = "select cents from payout where number = %(number)s"
    assert sql_row("books", by_number, result=lambda row: row["cents"])(intent(number="4711")) == Happened(100)
    mine = sql_row("books", by_number, parameters=lambda one: {"number": one.request["invoice"][1:]})
    assert mine(intent(invoice="#4711")) == Happened({"cents": 100})


def test_no_row_is_no_and_several_can_not_tell(payouts: str) -> None:
    assert sql_row("books", "select 1 from payout where ref = 'other'")(intent()) == DidNotHappen()
    assert sql_row("books", "select 1 from payout where ref = 'af_2'")(intent()) == CannotTell(
        "the query gave more than one row"
    )


def test_a_query_that_fails_or_would_write_can_not_tell(payouts: str) -> None:
    assert sql_row("books", "select 1 from elsewhere")(intent()) == CannotTell(
        "the query failed with UndefinedTable 42P01"
    )
    writing = sql_row("books", "delete from payout returning ref")
    assert writing(intent()) == CannotTell("the query failed with ReadOnlySqlTransaction 25006")
    with psycopg.connect(payouts) as session:
        assert session.execute("select count(*) from payout").fetchone() == (3,)


def test_a_database_that_is_away_can_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", f"postgres://me:hunter2@127.0.0.1:{free_port()}/x")
    found = sql_row("away", FIND)(intent())
    assert found == CannotTell("the query failed with OperationalError")


# --- s3 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def exports(object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the hash of an object ``exports/4711.csv``, which the connection ``files`` reaches."""
    bucket = object_store.bucket()
    plain = {
        "conn_type": "minio",
        "host": object_store.endpoint,
        "login": object_store.access_key,
        "password": object_store.secret_key,
        "schema": bucket,
        "extra": {"secure": False},
    }
    monkeypatch.setenv("AIRFLOW_CONN_FILES", json.dumps(plain))
    settings = S3Settings(object_store.endpoint, bucket, object_store.access_key, object_store.secret_key, secure=False)
    http = make_http_client(True)
    data = b"a;b\n" * 500_000
    import io

    make_client(settings, http).put_object(bucket, "exports/4711.csv", io.BytesIO(data), len(data))
    http.clear()
    return hashlib.sha256(data).hexdigest()


def test_an_object_with_its_hash(exports: str) -> None:
    probe = s3_object(
        "exports/{number}.csv", conn_id="files", sha256="{digest}", result=lambda one: one.request["number"]
    )
    assert probe(intent(number="4711", digest=exports.upper())) == Happened("4711")
    assert probe(intent(number="4711", digest="0" * 64)) == CannotTell("the object is there, with other bytes")
    assert probe(intent(number="4712", digest=exports)) == DidNotHappen()
    assert s3_object("exports/{number}.csv", conn_id="files")(intent(number="4711")) == Happened(None)
    assert s3_object("exports/{number}.csv", conn_id="files")(intent(number="4712")) == DidNotHappen()


def test_a_bucket_or_server_that_is_away_can_not_tell(exports: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = s3_object("x", conn_id="files", bucket="no-such-bucket-here")
    assert isinstance(elsewhere(intent()), CannotTell)
    away = {"conn_type": "minio", "host": f"127.0.0.1:{free_port()}", "login": "a", "password": "hunter2hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_GONE", json.dumps(away | {"schema": "bucket", "extra": {"secure": False}}))
    monkeypatch.setattr("airflow_aiflow.reconcile.PATIENCE", 0.5)
    assert s3_object("x", conn_id="gone")(intent()) == CannotTell(
        "the S3 server could not be asked: ArtifactUnavailableError"
    )
