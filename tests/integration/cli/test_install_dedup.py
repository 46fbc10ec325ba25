"""``aiflow db install-dedup``: by a connection of the environment or an address, again and again, or as SQL."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.testing import DurableTask


@pytest.fixture
def target(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an empty database."""
    return postgres_server.fresh_database("target")


@pytest.fixture
def app(target: str, postgres_server: PostgresServer) -> str:
    """Give the address for a role that may log in and nothing else."""
    name, word = f'app "{uuid4().hex[:8]}', uuid4().hex
    database = str(conninfo_to_dict(target)["dbname"])
    with psycopg.connect(postgres_server.dsn(database, "postgres"), autocommit=True) as connection:
        quoted = '"' + name.replace('"', '""') + '"'
        connection.execute(f"CREATE ROLE {quoted} LOGIN PASSWORD '{word}'".encode())
        connection.execute(f"GRANT CONNECT ON DATABASE {database} TO {quoted}".encode())
    return make_conninfo(target, user=name, password=word)


def one(cur: psycopg.Cursor[Any]) -> int:
    return int(cur.execute("SELECT 1").fetchone()[0])  # type: ignore[index]


def works(dsn: str) -> bool:
    task = DurableTask(databases={"erp": dsn})
    return task.run(lambda flow: flow.transaction("one", one, conn_id="erp", key=str(uuid4()))) == 1


def test_it_installs_once_and_grants(
    target: str, app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ERP_OWNER", target)
    assert main(["db", "install-dedup", "erp_owner", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    role = str(conninfo_to_dict(app)["user"])
    assert main(["db", "install-dedup", target, "--grant", role, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == {"store_id": first["store_id"], "granted": [role]}
    assert works(app)


def test_the_printed_sql_does_the_same(target: str, app: str, capsys: pytest.CaptureFixture[str]) -> None:
    role = str(conninfo_to_dict(app)["user"])
    assert main(["db", "install-dedup", "nowhere", "--sql", "--grant", role]) == 0
    printed = capsys.readouterr().out
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute(printed.encode())
        connection.execute(printed.encode())
    assert works(app)


def test_what_is_wrong_is_said(
    target: str, app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "install-dedup", "nowhere"]) == 1
    assert "AIRFLOW_CONN_NOWHERE is not set" in capsys.readouterr().err
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "mysql://a:hush@b/c")
    assert main(["db", "install-dedup", "other"]) == 1
    assert "of type 'mysql'" in capsys.readouterr().err
    assert main(["db", "install-dedup", app]) == 1
    assert "permission denied" in capsys.readouterr().err
    away = make_conninfo(target, port=free_port())
    assert main(["db", "install-dedup", away]) == 1
    said = capsys.readouterr().err
    assert "could not be made" in said
    assert str(conninfo_to_dict(target)["password"]) not in said
    assert main(["db", "install-dedup", "postgresql://x y"]) == 1
    assert "neither" in capsys.readouterr().err
