"""`aiflow effects list | release --conn-id`: what was done in the database that it changed."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask


def bill(cur: psycopg.Cursor[object], number: int) -> int:
    cur.execute("CREATE TABLE IF NOT EXISTS bill (id bigint)")
    cur.execute("INSERT INTO bill VALUES (%s)", (number,))
    return number


def test_what_was_done_is_listed_and_released_where_it_was_done(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = postgres_server.fresh_database("erp")
    monkeypatch.setenv("AIRFLOW_CONN_ERP", dsn)
    assert main(["effects", "list", "--conn-id", "erp"]) == 1, "there is no dedup table yet"
    capsys.readouterr()

    def body(flow: Flow) -> int:
        return flow.transaction("bill", bill, 7, conn_id="erp", key="k")

    assert DurableTask(databases={"erp": dsn}).run(body) == 7
    assert main(["effects", "list", "--conn-id", "erp", "--key", "k", "--json"]) == 0
    [done] = json.loads(capsys.readouterr().out)["effects"]
    assert (done["name"], done["key"], done["run_id"]) == ("bill", "k", "run")
    release = ["effects", "release", "--conn-id", "erp", "--by", "ann", "--reason", "wrong day"]
    assert main([*release, str(uuid4())]) == 1
    assert "your word does not count" in capsys.readouterr().out
    assert main([*release, done["act"]]) == 0
    capsys.readouterr()
    assert main(["effects", "list", "--conn-id", "erp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["effects"] == []
    assert DurableTask(databases={"erp": dsn}, run_id="next").run(body) == 7


def test_an_address_is_never_printed_for_it_holds_a_password(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = postgres_server.fresh_database("erp")
    said: list[str] = []
    for address in (dsn, make_conninfo(dsn, options="-c no_such_setting=1")):
        assert main(["effects", "list", "--conn-id", address]) == 1
        said += capsys.readouterr()
    assert main(["db", "install-dedup", dsn]) == 0
    assert main(["effects", "list", "--conn-id", dsn]) == 0
    text = "".join([*said, *capsys.readouterr()])
    assert "no effects were done through the given address" in text
    assert str(conninfo_to_dict(dsn)["password"]) not in text


@pytest.mark.parametrize("arguments", [["1842", "--conn-id", "erp"], [str(uuid4())]])
def test_a_number_is_the_ledgers_and_a_try_the_databases(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["effects", "release", *arguments, "--reason", "r"])
    assert ended.value.code == 2
