"""The ledger's schema: the sum of its migrations, upgraded by many at once, and refused where it is another."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from alembic.script import ScriptDirectory
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from airflow_aiflow.exceptions import AiflowConfigError, LedgerSchemaError, LedgerUnavailableError
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.schema import EXPECTED
from airflow_aiflow.testing import DurableTask

#: All that makes a schema, as the catalog has it: columns, constraints, indexes, options, view, function, grants.
CATALOG = (
    """select table_name, ordinal_position, column_name, data_type, is_nullable, column_default, is_identity
    from information_schema.columns where table_schema = 'aiflow'""",
    """select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint
    where connamespace = 'aiflow'::regnamespace""",
    "select tablename, indexname, indexdef from pg_indexes where schemaname = 'aiflow'",
    "select relname, relkind, reloptions::text, relacl::text from pg_class where relnamespace = 'aiflow'::regnamespace",
    """select t.typname, t.typtype, format_type(t.typbasetype, null), pg_get_constraintdef(c.oid)
    from pg_type t left join pg_constraint c on c.contypid = t.oid where t.typnamespace = 'aiflow'::regnamespace""",
    "select enumtypid::regtype::text, enumsortorder, enumlabel from pg_enum",
    "select viewname, definition from pg_views where schemaname = 'aiflow'",
    "select proname, prosrc, proacl::text from pg_proc where pronamespace = 'aiflow'::regnamespace",
    "select nspname, nspacl::text from pg_namespace where nspname = 'aiflow'",
    "select version_num from aiflow.schema_version",
)


@pytest.fixture
def owner(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an empty database."""
    return postgres_server.fresh_database("migration")


def role_dsn(server: PostgresServer, owner: str, role: str = postgres_roles.AIFLOW) -> str:
    """Give another role's address of the same database."""
    return server.dsn(str(conninfo_to_dict(owner)["dbname"]), role)


def catalog(dsn: str) -> list[list[tuple[Any, ...]]]:
    """Read the schema."""
    with psycopg.connect(dsn) as connection:
        return [sorted(connection.execute(query).fetchall(), key=repr) for query in CATALOG]


def execute(dsn: str, *queries: str) -> None:
    """Run statements, each committed."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for query in queries:
            connection.execute(query)


def test_the_head_of_the_migrations_is_what_the_code_expects() -> None:
    scripts = ScriptDirectory.from_config(migrate._config())
    assert scripts.get_heads() == [EXPECTED]
    revisions = [script.revision for script in scripts.walk_revisions()][::-1]
    # Numbers with leading zeros, so that older and newer can be told apart as text.
    assert revisions == [f"{number:04}" for number in range(1, len(revisions) + 1)]


def test_every_revision_is_raw_sql_and_there_is_no_way_down() -> None:
    versions = files("airflow_aiflow.storage").joinpath("migrations", "versions")
    modules = [path for path in versions.iterdir() if path.name[:4].isdigit() and path.name.endswith(".py")]
    assert len(modules) >= 1
    for module in modules:
        assert versions.joinpath(module.name.removesuffix(".py") + ".sql").is_file()
        assert "def downgrade" not in module.read_text(encoding="utf-8")


def test_an_empty_database_is_upgraded(owner: str) -> None:
    assert migrate.current(owner) is None
    with pytest.raises(LedgerSchemaError, match="aiflow db upgrade"):
        migrate.check(owner)
    migrate.upgrade(owner)
    assert migrate.current(owner) == EXPECTED
    migrate.check(owner)


def test_a_second_upgrade_changes_nothing(owner: str) -> None:
    migrate.upgrade(owner)
    before = catalog(owner)
    migrate.upgrade(owner)
    assert catalog(owner) == before


def test_the_script_written_out_builds_the_same_schema(postgres_server: PostgresServer, owner: str) -> None:
    migrate.upgrade(owner)
    by_hand = postgres_server.fresh_database("migration")
    execute(by_hand, migrate.script())
    assert catalog(by_hand) == catalog(owner)
    migrate.check(by_hand)


def test_a_schema_that_the_owner_made_is_used(postgres_server: PostgresServer, owner: str) -> None:
    """A role that may not create schemas upgrades one that is there already."""
    execute(
        role_dsn(postgres_server, owner, postgres_roles.SUPERUSER),
        "create schema aiflow authorization aiflow_owner",
        "alter schema public owner to postgres",
        "alter database " + str(conninfo_to_dict(owner)["dbname"]) + " owner to postgres",
        "grant connect on database " + str(conninfo_to_dict(owner)["dbname"]) + " to aiflow_owner",
    )
    migrate.upgrade(owner)
    migrate.check(owner)


def test_parallel_upgrades_all_succeed(owner: str) -> None:
    program = "import sys; from airflow_aiflow.storage import migrate; migrate.upgrade(sys.stdin.read())"
    # Each waits at its standard input, so that all begin together, imports done by none.
    upgrades = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for each in upgrades:
        assert each.stdin is not None
        each.stdin.write(owner)
        each.stdin.close()
        each.stdin = None
    faults = [each.communicate(timeout=120)[1] for each in upgrades]
    assert [each.returncode for each in upgrades] == [0] * 4, faults
    migrate.check(owner)


def test_upgrades_in_threads_of_one_process_wait_for_each_other(postgres_server: PostgresServer, owner: str) -> None:
    other = postgres_server.fresh_database("migration")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate.upgrade, [owner, other, owner, other]))
    assert catalog(owner) == catalog(other)


def test_an_upgrade_that_fails_leaves_nothing(postgres_server: PostgresServer, owner: str) -> None:
    # The role that tasks use may create nothing.
    with pytest.raises(LedgerSchemaError, match="owner"):
        migrate.upgrade(role_dsn(postgres_server, owner))
    assert migrate.current(owner) is None


def test_the_role_of_tasks_gets_rows_and_nothing_else(postgres_server: PostgresServer, owner: str) -> None:
    migrate.upgrade(owner)
    with psycopg.connect(role_dsn(postgres_server, owner), autocommit=True) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'aiflow'").fetchall()
        for (table,) in tables:
            name = Identifier("aiflow", table)
            connection.execute(SQL("select from {} limit 1").format(name))
            if table != "schema_version":
                connection.execute(SQL("delete from {} where false").format(name))
        for refused in (
            "create table aiflow.mine (x int)",
            "alter table aiflow.lease add column mine int",
            "drop table aiflow.step",
            "truncate aiflow.step",
            "update aiflow.schema_version set version_num = '0000'",
            "create schema mine",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(refused)


def test_a_table_of_a_later_revision_is_open_to_the_role_of_tasks(postgres_server: PostgresServer, owner: str) -> None:
    migrate.upgrade(owner)
    execute(owner, "create table aiflow.later (id bigint generated always as identity, x int)")
    execute(role_dsn(postgres_server, owner), "insert into aiflow.later (x) values (1)", "delete from aiflow.later")


def test_tasks_may_check_and_an_upgrade_of_the_newest_needs_no_right(
    postgres_server: PostgresServer, owner: str
) -> None:
    migrate.upgrade(owner)
    migrate.check(role_dsn(postgres_server, owner))
    migrate.upgrade(role_dsn(postgres_server, owner))


@pytest.mark.parametrize(
    ("version", "says"), [("0000", "revision 0000, this code needs"), ("9999", "9999, newer than this code's")]
)
def test_another_revision_is_told_as_older_or_newer(
    postgres_server: PostgresServer, owner: str, version: str, says: str
) -> None:
    migrate.upgrade(owner)
    with psycopg.connect(owner) as connection:
        connection.execute("update aiflow.schema_version set version_num = %s", [version])
    with pytest.raises(LedgerSchemaError, match=says):
        migrate.check(owner)
    ledger = PostgresLedger.connect(role_dsn(postgres_server, owner))
    try:
        with pytest.raises(LedgerSchemaError, match=says):
            ledger.check()
    finally:
        ledger.close()


def test_an_attempt_under_the_schema_before_starts_nothing(
    postgres_server: PostgresServer, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker was upgraded before the ledger: nothing may be done whose record would then be refused."""
    with monkeypatch.context() as earlier:
        earlier.setattr(migrate, "EXPECTED", f"{int(EXPECTED) - 1:04}")
        migrate.upgrade(owner)
    with closing(PostgresLedger.connect(role_dsn(postgres_server, owner))) as ledger:
        task, ran = DurableTask(ledger=ledger, clock=SystemClock()), list[int]()
        with pytest.raises(LedgerSchemaError, match=f"this code needs {EXPECTED}: run `aiflow db upgrade`"):
            task.run(lambda flow: ran.append(1))
        assert ran == []
        migrate.upgrade(owner)
        task.run(lambda flow: ran.append(2))
    assert ran == [2]


def test_a_newer_schema_is_not_upgraded(owner: str) -> None:
    migrate.upgrade(owner)
    execute(owner, "update aiflow.schema_version set version_num = '9999'")
    with pytest.raises(LedgerSchemaError, match="newer than this code's"):
        migrate.upgrade(owner)


@pytest.mark.parametrize("state", ["no schema", "no tables", "no version"])
def test_a_missing_schema_is_told_by_check_and_by_every_method(
    postgres_server: PostgresServer, owner: str, state: str
) -> None:
    if state == "no tables":
        execute(owner, "create schema aiflow", "grant usage on schema aiflow to aiflow")
    if state == "no version":
        migrate.upgrade(owner)
        execute(owner, "delete from aiflow.schema_version", "drop table aiflow.lease cascade")
    assert migrate.current(owner) is None
    ledger = PostgresLedger.connect(role_dsn(postgres_server, owner))
    try:
        with pytest.raises(LedgerSchemaError, match="aiflow db upgrade"):
            ledger.check()
        with pytest.raises(LedgerSchemaError, match="aiflow db upgrade"):
            ledger.want(1, 1, uuid4())
    finally:
        ledger.close()


def test_a_missing_schema_is_told_without_the_drivers_traceback(postgres_server: PostgresServer, owner: str) -> None:
    ledger = PostgresLedger.connect(role_dsn(postgres_server, owner))
    try:
        with pytest.raises(LedgerSchemaError, match="has no schema 'aiflow'") as caught:
            ledger.check()
    finally:
        ledger.close()
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_schema_that_the_role_may_not_use_is_not_called_missing(postgres_server: PostgresServer, owner: str) -> None:
    migrate.upgrade(owner)
    execute(owner, "revoke usage on schema aiflow from aiflow")
    ledger = PostgresLedger.connect(role_dsn(postgres_server, owner))
    try:
        with pytest.raises(LedgerSchemaError, match="refuses its role a right") as caught:
            ledger.check()
    finally:
        ledger.close()
    assert "no schema" not in str(caught.value)


def test_another_encoding_is_refused(postgres_server: PostgresServer) -> None:
    superuser = postgres_server.dsn("postgres", postgres_roles.SUPERUSER)
    execute(superuser, "create database latin encoding 'LATIN1' template template0 owner aiflow_owner")
    with pytest.raises(AiflowConfigError, match="encoding LATIN1"):
        migrate.upgrade(postgres_server.dsn("latin", postgres_roles.AIFLOW_OWNER))


def test_an_unreachable_database_is_named_without_its_password() -> None:
    port = free_port()
    with pytest.raises(LedgerUnavailableError, match=f"127.0.0.1:{port}") as caught:
        migrate.upgrade(make_conninfo(host="127.0.0.1", port=port, dbname="x", user="u", password="hush-hush"))
    assert "hush-hush" not in str(caught.value)


def test_what_is_no_address_is_refused_without_showing_it() -> None:
    with pytest.raises(AiflowConfigError) as caught:
        migrate.upgrade("postgresql://u:hush-hush@/x?no_such_option=1")
    assert "hush-hush" not in str(caught.value)
