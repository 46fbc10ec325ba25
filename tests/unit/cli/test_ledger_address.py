"""Which ledger a command is about, read from Airflow's two forms without Airflow, and as Airflow reads them."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from airflow.sdk import Connection
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.cli.ledger_address import VARIABLE, conninfo_of, find_ledger, stack_in_mind
from airflow_aiflow.exceptions import AiflowConfigError, LedgerUnavailableError
from airflow_aiflow.hooks.conninfo import ledger_conninfo
from airflow_aiflow.local.env_file import write_env

SECRET = "p@ss/w:rd %&=?#[é"


def options(home: Path, dsn: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(dsn=dsn, home=home)


def connection(**fields: object) -> Connection:
    plain = {"conn_type": "postgres", "host": "db.example", "port": 5433, "schema": "ai/flow", "login": "a b"}
    return Connection(**({"conn_id": "aiflow_ledger", "password": SECRET} | plain | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "extra",
    [None, {"sslmode": "require"}, {"sslmode": "require", "connect_timeout": 5, "cursor": "dictcursor"}],
)
def test_both_forms_are_read_as_airflow_reads_them(extra: dict[str, object] | None) -> None:
    whole = connection(extra=None if extra is None else json.dumps(extra))
    expected = conninfo_to_dict(ledger_conninfo(whole))
    assert expected["password"] == SECRET
    assert conninfo_to_dict(conninfo_of(whole.get_uri(), VARIABLE)) == expected
    assert conninfo_to_dict(conninfo_of(whole.as_json(), VARIABLE)) == expected


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_a_uri_of_either_name_is_read(scheme: str) -> None:
    assert conninfo_to_dict(conninfo_of(f"{scheme}://u:p@h/d", VARIABLE)) == {
        "user": "u",
        "password": "p",
        "host": "h",
        "dbname": "d",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"mysql://u:{SECRET[:1]}hush@h/d", "is of type 'mysql'"),
        ('{"conn_type": "postgres", "password": "hush"', "not JSON"),
        ("postgres://u:hush@h:port/d", "no URI"),
        ("postgres://u:hush@h/d?ssl_mode=require", "ssl_mode"),
        ('{"conn_type": "postgres", "password": "hush", "extra": "[1]"}', "extra must be a JSON object"),
        ("hush", "is of type 'None'"),
    ],
)
def test_what_can_t_be_read_is_named_by_where_it_stands_and_not_shown(text: str, says: str) -> None:
    with pytest.raises(AiflowConfigError, match=says) as caught:
        conninfo_of(text, VARIABLE)
    assert VARIABLE in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_option_comes_first_then_the_environment_then_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(AiflowConfigError, match=r"--dsn.*AIRFLOW_CONN_AIFLOW_LEDGER.*aiflow up"):
        find_ledger(options(tmp_path))
    write_env(tmp_path / "env", {VARIABLE: json.dumps({"conn_type": "postgres", "host": "of-the-stack"})})
    assert find_ledger(options(tmp_path)) == "host=of-the-stack"
    monkeypatch.setenv(VARIABLE, "postgres://of-the-environment")
    assert find_ledger(options(tmp_path)) == "host=of-the-environment"
    assert find_ledger(options(tmp_path, "host=of-the-option")) == "host=of-the-option"


def test_a_stack_that_is_not_running_is_the_reason_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    silence = LedgerUnavailableError("connection refused")
    message = f"the stack in {tmp_path} is not running: start it by `aiflow up --home {tmp_path}`"
    with pytest.raises(AiflowConfigError, match=re.escape(message)), stack_in_mind(options(tmp_path)):
        raise silence
    with pytest.raises(LedgerUnavailableError), stack_in_mind(options(tmp_path, "host=elsewhere")):
        raise silence
    monkeypatch.setenv(VARIABLE, "postgresql://elsewhere")
    with pytest.raises(LedgerUnavailableError), stack_in_mind(options(tmp_path)):
        raise silence
