"""From an Airflow connection to libpq's words."""

from __future__ import annotations

import json

import pytest
from airflow.sdk import Connection
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.hooks.conninfo import ledger_conninfo

PASSWORD = "p'w \\ with = and spaces"


def connection(extra: object = None, conn_type: str = "postgres") -> Connection:
    return Connection(
        conn_id="aiflow_ledger",
        conn_type=conn_type,
        host="db.example",
        port=5433,
        schema="aiflow",
        login="aiflow",
        password=PASSWORD,
        extra=None if extra is None else json.dumps(extra),
    )


def test_fields_and_extras_are_kept_as_they_are() -> None:
    found = conninfo_to_dict(ledger_conninfo(connection({"sslmode": "require", "connect_timeout": 5})))
    assert {name: str(value) for name, value in found.items()} == {
        "host": "db.example",
        "port": "5433",
        "dbname": "aiflow",
        "user": "aiflow",
        "password": PASSWORD,
        "sslmode": "require",
        "connect_timeout": "5",
    }


def test_what_airflows_own_hook_reads_is_left_out() -> None:
    assert "cursor" not in conninfo_to_dict(ledger_conninfo(connection({"cursor": "dictcursor", "iam": False})))


def test_a_word_that_libpq_does_not_know_is_named_without_the_password() -> None:
    with pytest.raises(AiflowConfigError, match=r"connection 'aiflow_ledger'.*ssl_mode") as caught:
        ledger_conninfo(connection({"ssl_mode": "require"}))
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_another_type_is_refused() -> None:
    with pytest.raises(AiflowConfigError, match="is of type 'mysql'; one of type 'postgres' is needed here"):
        ledger_conninfo(connection(conn_type="mysql"))
