"""`aiflow db upgrade | check` as people run it: another process, exit codes, text and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.cli.ledger_address import VARIABLE
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.schema import EXPECTED


@pytest.fixture
def owner(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an empty database."""
    return postgres_server.fresh_database("db")


def db(*words: str, home: Path, ledger: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command, the ledger in the environment."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if ledger is not None:
        environment[VARIABLE] = ledger
    command = [sys.executable, "-m", "airflow_aiflow.cli", "db", *words, "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_upgrade_then_check(owner: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    missing = db("check", "--dsn", owner, home=tmp_path)
    assert missing.returncode == 1
    assert "aiflow db upgrade" in missing.stderr

    first = db("upgrade", "--json", home=tmp_path, ledger=owner)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {"before": None, "revision": EXPECTED}
    again = db("upgrade", home=tmp_path, ledger=owner)
    assert (again.returncode, again.stdout) == (0, f"the ledger's schema is at revision {EXPECTED} already\n")

    tasks = postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))
    checked = db("check", "--json", "--dsn", tasks, home=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout) == {"revision": EXPECTED, "ok": True}


def test_the_printed_sql_builds_the_schema(owner: str, tmp_path: Path) -> None:
    printed = db("upgrade", "--sql", home=tmp_path)
    assert printed.returncode == 0, printed.stderr
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(printed.stdout)
    assert db("check", "--dsn", owner, home=tmp_path).returncode == 0


def test_no_ledger_and_an_unreachable_one_are_findings(tmp_path: Path) -> None:
    nowhere = db("check", "--json", home=tmp_path)
    assert nowhere.returncode == 1
    assert json.loads(nowhere.stdout)["error"] == "AiflowConfigError"
    port = free_port()
    away = db("upgrade", "--dsn", f"postgresql://u:hush-hush@127.0.0.1:{port}/x", home=tmp_path)
    assert away.returncode == 1
    assert f"127.0.0.1:{port}" in away.stderr
    assert "hush-hush" not in away.stdout + away.stderr


def test_a_verb_is_needed(tmp_path: Path) -> None:
    assert db(home=tmp_path).returncode == 2
