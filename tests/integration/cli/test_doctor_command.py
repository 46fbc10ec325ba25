"""`aiflow doctor` on a real database, a real S3 server and a real pooler, with wrong settings made for real."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from cryptography.fernet import Fernet
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.cli.doctor import clocks
from airflow_aiflow.cli.doctor.finding import Level
from airflow_aiflow.durable.record import Batch
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.ledger_probe import ClockFacts, LedgerProbe
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.schema import EXPECTED
from tests.contract.ledger_world import a_step, start
from tests.pooler import PGBOUNCER, pooled

Findings = dict[str, dict[str, str]]
Doctor = Callable[..., tuple[int, Findings, str]]

LEDGER, ARTIFACTS = "AIRFLOW_CONN_AIFLOW_LEDGER", "AIRFLOW_CONN_AIFLOW_ARTIFACTS"


@pytest.fixture(scope="module")
def owner(postgres_server: PostgresServer) -> str:
    dsn = postgres_server.fresh_database("doctor")
    upgrade(dsn)
    return dsn


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer, owner: str) -> str:
    """Give the address for the role that tasks use."""
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))


@pytest.fixture(scope="module")
def superuser(postgres_server: PostgresServer, owner: str) -> Iterator[psycopg.Connection[Any]]:
    address = postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]), "postgres")
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(superuser: psycopg.Connection[Any], dsn: str) -> Iterator[tuple[str, str]]:
    """Give a role of the test's own with the rights of a task, and its address."""
    name, password = f"doctor_{uuid4().hex[:8]}", uuid4().hex
    identifier = sql.Identifier(name)
    for statement in (
        sql.SQL("create role {} login password {}").format(identifier, sql.Literal(password)),
        sql.SQL("grant connect on database {} to {}").format(
            sql.Identifier(str(conninfo_to_dict(dsn)["dbname"])), identifier
        ),
        sql.SQL("grant usage on schema aiflow to {}").format(identifier),
        sql.SQL("grant select, insert, update, delete on all tables in schema aiflow to {}").format(identifier),
        sql.SQL("grant usage, select on all sequences in schema aiflow to {}").format(identifier),
    ):
        superuser.execute(statement)
    yield name, make_conninfo(dsn, user=name, password=password)
    superuser.execute(sql.SQL("drop owned by {}").format(identifier))
    superuser.execute(sql.SQL("drop role {}").format(identifier))


@pytest.fixture
def store(object_store: ObjectStoreServer) -> dict[str, Any]:
    return {
        "conn_type": "minio",
        "host": f"http://{object_store.endpoint}",
        "login": object_store.access_key,
        "password": object_store.secret_key,
        "schema": object_store.bucket(),
    }


@pytest.fixture
def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, dsn: str, store: dict[str, Any]
) -> Doctor:
    """Give a way to run the command, with the ledger and the store of these tests."""
    for variable in list(os.environ):
        if variable.startswith(("AIRFLOW_CONN_", "AIRFLOW__AIFLOW__")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("AIRFLOW__AIFLOW__SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv(ARTIFACTS, json.dumps(store))

    def doctor(*words: str, ledger: str | None = dsn) -> tuple[int, Findings, str]:
        command = ["doctor", *words, "--json", "--home", str(tmp_path / "no-stack")]
        code = main([*command, *(["--dsn", ledger] if ledger else [])])
        out = capsys.readouterr().out
        found = {one.pop("check"): one for one in json.loads(out)["findings"]}
        return code, found, out

    return doctor


def test_all_is_well_with_a_ledger_and_a_store_as_they_should_be(
    doctor: Doctor, dsn: str, store: dict[str, Any]
) -> None:
    code, found, out = doctor(
        "--only", "ledger", "--only", "artifacts", "--only", "settings", "--only", "clock.database"
    )
    assert {name: one for name, one in found.items() if one["level"] != "ok"}.keys() == {"settings.seal_key"}
    assert code == 0
    assert EXPECTED in found["ledger.schema"]["found"]
    assert store["schema"] in found["artifacts.store"]["found"]
    assert found["artifacts.conditions"]["found"].count("minded") + found["artifacts.conditions"]["found"].count(
        "ignored"
    )
    assert found["ledger.pooler"]["found"].startswith("no pooler")
    for secret in (str(conninfo_to_dict(dsn)["password"]), store["password"]):
        assert secret not in out


def test_a_warning_is_a_finding_only_where_it_is_asked_for(doctor: Doctor) -> None:
    assert doctor("--only", "settings")[0] == 0
    assert doctor("--only", "settings", "--strict")[0] == 1
    assert doctor("--only", "settings", "--skip", "settings.seal_key", "--strict")[0] == 0
    with pytest.raises(SystemExit) as wrong:
        doctor("--skip", "ledgers")
    assert wrong.value.code == 2


@pytest.mark.parametrize(
    ("setting", "value", "check", "level", "fix"),
    [
        ("default_transaction_isolation", "repeatable read", "ledger.isolation", "error", "read committed"),
        ("synchronous_commit", "off", "ledger.durability", "error", "synchronous_commit = on"),
        ("synchronous_commit", "local", "ledger.durability", "warning", "synchronous_commit = on"),
    ],
)
def test_a_roles_settings_are_told_with_the_command_that_mends_them(
    doctor: Doctor,
    superuser: psycopg.Connection[Any],
    role: tuple[str, str],
    setting: str,
    value: str,
    check: str,
    level: str,
    fix: str,
) -> None:
    name, address = role
    command = sql.SQL("alter role {} set {} = {}")
    superuser.execute(command.format(sql.Identifier(name), sql.Identifier(setting), sql.Literal(value)))
    code, found, _ = doctor("--only", "ledger", ledger=address)
    assert found[check]["level"] == level
    assert value in found[check]["found"]
    assert f'ALTER ROLE "{name}" SET' in found[check]["fix"]
    assert fix in found[check]["fix"]
    assert code == (1 if level == "error" else 0)
    assert {other for other, one in found.items() if one["level"] != "ok"} == {check}
    # And the fix is one.
    superuser.execute(found[check]["fix"].partition(";")[0])
    assert doctor("--only", check, ledger=address)[1][check]["level"] == "ok"


def test_a_missing_right_is_named(doctor: Doctor, superuser: psycopg.Connection[Any], role: tuple[str, str]) -> None:
    name, address = role
    identifier = sql.Identifier(name)
    superuser.execute(sql.SQL("revoke delete, update on aiflow.lease from {}").format(identifier))
    superuser.execute(sql.SQL("revoke usage on sequence aiflow.inbox_number from {}").format(identifier))
    code, found, _ = doctor("--only", "ledger", ledger=address)
    assert code == 1
    rights = found["ledger.rights"]
    assert rights["level"] == "error"
    assert "UPDATE on lease" in rights["found"] or "DELETE, UPDATE on lease" in rights["found"]
    assert "USAGE on inbox_number" in rights["found"]
    for statement in rights["fix"].partition("For another role: ")[2].split(";"):
        superuser.execute(statement)
    assert doctor("--only", "ledger.rights", ledger=address)[1]["ledger.rights"]["level"] == "ok"


def test_a_role_that_may_not_even_look_hears_which_rights_it_lacks(
    doctor: Doctor, superuser: psycopg.Connection[Any], role: tuple[str, str]
) -> None:
    name, address = role
    superuser.execute(sql.SQL("revoke all on schema aiflow from {}").format(sql.Identifier(name)))
    code, found, _ = doctor("--only", "ledger", ledger=address)
    assert code == 1
    assert found["ledger.schema"]["level"] == "error"
    assert "USAGE on the schema aiflow" in found["ledger.rights"]["found"]
    assert found["ledger.isolation"]["level"] == "ok"


def test_more_rights_than_tasks_need_are_told(
    doctor: Doctor, owner: str, postgres_server: PostgresServer, dsn: str
) -> None:
    code, found, _ = doctor("--only", "ledger", ledger=owner)
    assert (code, found["ledger.owner"]["level"]) == (0, "warning")
    assert "can change or drop" in found["ledger.owner"]["found"]
    superuser = postgres_server.dsn(str(conninfo_to_dict(dsn)["dbname"]), "postgres")
    assert "superuser" in doctor("--only", "ledger", ledger=superuser)[1]["ledger.owner"]["found"]


def test_no_schema_an_old_one_and_a_newer_one(
    doctor: Doctor, postgres_server: PostgresServer, superuser: psycopg.Connection[Any]
) -> None:
    empty = postgres_server.fresh_database("doctor_empty")
    code, found, _ = doctor("--only", "ledger", "--only", "inbox", ledger=empty)
    assert code == 1
    assert found["ledger.schema"]["level"] == "error"
    assert "aiflow db upgrade" in found["ledger.schema"]["fix"]
    assert found["ledger.rights"]["found"] == found["inbox.waiting"]["found"] == "not checked: see ledger.schema"
    upgrade(empty)
    for revision, word in (("0001", "needs"), ("9999", "newer")):
        with psycopg.connect(empty, autocommit=True) as connection:
            connection.execute("update aiflow.schema_version set version_num = %s", [revision])
        found = doctor("--only", "ledger.schema", ledger=empty)[1]
        assert found["ledger.schema"]["level"] == "error"
        assert word in found["ledger.schema"]["found"]


def test_a_ledger_that_does_not_answer_hides_nothing_else(doctor: Doctor, dsn: str) -> None:
    away = make_conninfo(dsn, port=free_port())
    code, found, out = doctor(ledger=away)
    assert code == 1
    assert found["ledger.server"]["level"] == "error"
    assert found["ledger.rights"]["found"] == "not checked: see ledger.server"
    assert found["artifacts.store"]["level"] == "ok"
    assert found["settings.lease"]["level"] == "ok"
    assert found["api.address"]["level"] == "error"
    assert str(conninfo_to_dict(dsn)["password"]) not in out


@pytest.mark.skipif(PGBOUNCER is None, reason="needs the program pgbouncer")
@pytest.mark.parametrize(("mode", "word"), [("transaction", "LISTEN is dead"), ("session", "LISTEN works")])
def test_a_pooler_is_told_from_a_direct_connection(
    doctor: Doctor, dsn: str, tmp_path: Path, mode: str, word: str
) -> None:
    with pooled(dsn, tmp_path, mode) as address:
        code, found, _ = doctor("--only", "ledger.pooler", ledger=address)
    assert code == 0
    assert word in found["ledger.pooler"]["found"]


def test_a_wrong_bucket_and_a_wrong_secret(
    doctor: Doctor, store: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv(ARTIFACTS, json.dumps(store | {"schema": "not-there"}))
    code, found, _ = doctor("--only", "artifacts", "--only", "ledger")
    assert code == 1
    assert found["artifacts.store"]["level"] == "error"
    assert "not-there" in found["artifacts.store"]["found"]
    assert found["artifacts.conditions"]["found"] == "not checked: see artifacts.store"
    assert found["ledger.rights"]["level"] == "ok"
    monkeypatch.setenv(ARTIFACTS, json.dumps(store | {"password": "wrong-secret-of-a-key"}))
    code, found, out = doctor("--only", "artifacts")
    assert (code, found["artifacts.store"]["level"]) == (1, "error")
    assert "wrong-secret-of-a-key" not in out


def test_the_clock_is_measured_and_never_breaks_anything(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = doctor("--only", "clock.database")[1]["clock.database"]
    assert measured["level"] == "ok"
    monkeypatch.setattr(LedgerProbe, "clock", lambda self: ClockFacts(ahead=-600.0, within=0.01))
    code, found, _ = doctor("--only", "clock.database")
    assert (code, found["clock.database"]["level"]) == (0, "warning")
    assert "600.0 s behind the database's" in found["clock.database"]["found"]
    refused = clocks.compared("the object store's", 901.0, 1.0, refuses=clocks.S3_REFUSES)
    assert refused.level is Level.WARNING
    assert clocks.compared("the object store's", 903.0, 1.0, refuses=clocks.S3_REFUSES).means.endswith("such a clock")


def test_values_that_no_key_here_opens_are_told(
    doctor: Doctor, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [Fernet.generate_key().decode() for _ in range(2)]
    dsn = postgres_server.fresh_database("doctor_keys")
    upgrade(dsn)

    locked = PayloadCipher((keys[0].encode(),)).lock(b'"a word"')
    with closing(PostgresLedger.connect(dsn)) as ledger:
        taken = start(ledger)
        ledger.record(taken.lease, taken.generation, Batch(steps=(a_step(result=locked),)))
    monkeypatch.setenv("AIRFLOW__AIFLOW__PAYLOAD_KEYS", ",".join(keys))
    assert doctor("--only", "ledger.payload_keys", ledger=dsn)[1]["ledger.payload_keys"]["level"] == "ok"
    monkeypatch.setenv("AIRFLOW__AIFLOW__PAYLOAD_KEYS", keys[1])
    code, found, out = doctor("--only", "ledger.payload_keys", "--only", "settings", ledger=dsn)
    assert (code, found["ledger.payload_keys"]["level"]) == (1, "error")
    assert found["settings.payload_keys"]["level"] == "ok"
    assert keys[0] not in out
    assert keys[1] not in out


def test_settings_that_cannot_be_used(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__AIFLOW__LEASE_TTL", "30")
    monkeypatch.setenv("AIRFLOW__AIFLOW__HEARTBEAT_INTERVAL", "50")
    monkeypatch.setenv("AIRFLOW__AIFLOW__INLINE_LIMIT", "none")
    monkeypatch.setenv("AIRFLOW__AIFLOW__SEAL_KEY", "tooshort")
    monkeypatch.setenv("AIRFLOW__AIFLOW__PAYLOAD_KEYS", "no key at all")
    code, found, out = doctor("--only", "settings")
    assert code == 1
    assert {name for name, one in found.items() if one["level"] == "error"} == {
        "settings.lease",
        "settings.options",
        "settings.seal_key",
        "settings.payload_keys",
    }
    assert "LEASE_TTL=150" in found["settings.lease"]["fix"]
    assert "inline_limit" in found["settings.options"]["found"]
    assert "tooshort" not in out
    assert "no key at all" not in out


def test_airflows_times_against_ours(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    skip = ("--skip", "airflow.execution_api")
    assert {one["level"] for one in doctor("--only", "airflow", *skip)[1].values()} == {"ok"}
    monkeypatch.setenv("AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT", "30")
    monkeypatch.setenv("AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL", "60")
    monkeypatch.setenv("AIRFLOW__CORE__TASK_SUCCESS_OVERTIME", "2")
    monkeypatch.setenv("AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS", "1")
    code, found, _ = doctor("--only", "airflow", *skip)
    assert code == 0
    assert {name: one["level"] for name, one in found.items()} == {
        "airflow.heartbeat_timeout": "warning",
        "airflow.detection": "warning",
        "airflow.success_overtime": "warning",
        "airflow.supervisor": "warning",
    }


def test_what_lies_in_the_spool_is_told(doctor: Doctor, tmp_path: Path) -> None:
    assert doctor("--only", "spool")[1]["spool.left"]["level"] == "ok"
    folder = tmp_path / "spool"
    folder.mkdir(mode=0o700)
    (folder / "one.spool").write_bytes(b"sealed")
    old = (datetime.now(UTC) - timedelta(hours=5)).timestamp()
    os.utime(folder / "one.spool", (old, old))
    found = doctor("--only", "spool")[1]["spool.left"]
    assert found["level"] == "warning"
    assert "1 outcomes, the oldest 5.0 h old" in found["found"]


def test_a_spool_that_can_not_hold_anything(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor("--only", "spool")[1]["spool.folder"]["level"] == "ok"
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRFLOW__AIFLOW__SPOOL_DIR", str(tmp_path / "file" / "spool"))
    code, found, _ = doctor("--only", "spool")
    assert (code, found["spool.folder"]["level"]) == (1, "error")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    monkeypatch.setenv("AIRFLOW__AIFLOW__SPOOL_DIR", str(tmp_path / "open"))
    assert doctor("--only", "spool")[1]["spool.folder"]["fix"] == f"chmod 700 {tmp_path / 'open'}"


def test_people_read_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path, dsn: str) -> None:
    assert main(["doctor", "--only", "ledger", "--dsn", dsn, "--home", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok")
    assert lines[-1] == "9 checks: 0 errors, 0 warnings"
