"""The compose file's PostgreSQL script, run on a real, empty server: same roles and rights as the embedded stack's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from airflow_aiflow.local.ports import LOOPBACK
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.postgres_binaries import wheel_folder
from airflow_aiflow.local.postgres_roles import DATABASES, ROLES
from tests.unit.source_tree import ROOT

SCRIPT = ROOT / "docker" / "postgres-init.sh"
#: Characters that a shell, psql or SQL would take for their own.
PASSWORDS = {"airflow": "a'b\"c $HOME", "aiflow_owner": "\\x; DROP ROLE airflow; --", "aiflow": "p:q%41 é"}

#: What the script is for, as the catalogue shows it.
RIGHTS = {
    "roles": """
        SELECT rolname, rolsuper, rolcreatedb, rolcreaterole, rolcanlogin
        FROM pg_roles WHERE rolname LIKE 'ai%' ORDER BY rolname""",
    "settings": """
        SELECT setrole::regrole::text, setconfig FROM pg_db_role_setting ORDER BY 1""",
    "databases": """
        SELECT datname, grantee::regrole::text, privilege_type
        FROM pg_database, aclexplode(datacl) WHERE datname LIKE 'ai%' ORDER BY 1, 2, 3""",
    "later objects": """
        SELECT defaclobjtype, grantee::regrole::text, privilege_type
        FROM pg_default_acl, aclexplode(defaclacl) ORDER BY 1, 2, 3""",
}


def rights(server: PostgresServer) -> dict[str, list[tuple[object, ...]]]:
    """Return what the catalogue of the ledger's database says."""
    with psycopg.connect(server.dsn("aiflow", "postgres")) as connection:
        return {name: connection.execute(query.encode()).fetchall() for name, query in RIGHTS.items()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """Start a server of this test's own: roles belong to a whole server."""
    with PostgresServer(tmp_path / "pg") as server:
        yield server


def make_empty(server: PostgresServer) -> None:
    """Take the embedded stack's roles and databases away."""
    with psycopg.connect(server.dsn("postgres", "postgres"), autocommit=True) as connection:
        for name in DATABASES:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        for role in ROLES:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def run_script(server: PostgresServer) -> subprocess.CompletedProcess[str]:
    """Run the script as the image does: psql on PATH, the server's address in the environment."""
    environment = {
        "PATH": f"{wheel_folder()}:{os.environ['PATH']}",
        "PGHOST": LOOPBACK,
        "PGPORT": str(server.port),
        "PGPASSWORD": server.password("postgres"),
        "AIRFLOW_DB_PASSWORD": PASSWORDS["airflow"],
        "AIFLOW_OWNER_PASSWORD": PASSWORDS["aiflow_owner"],
        "AIFLOW_DB_PASSWORD": PASSWORDS["aiflow"],
    }
    return subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=60)


def test_gives_the_rights_of_the_embedded_stack(server: PostgresServer) -> None:
    embedded = rights(server)
    make_empty(server)
    done = run_script(server)
    assert done.returncode == 0, done.stderr
    assert rights(server) == embedded
    assert len(embedded["roles"]) == 3
    for role, password in PASSWORDS.items():
        database = "airflow" if role == "airflow" else "aiflow"
        with psycopg.connect(
            host=LOOPBACK, port=server.port, dbname=database, user=role, password=password
        ) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (role,)


def test_stops_at_the_first_error(server: PostgresServer) -> None:
    done = run_script(server)
    assert done.returncode != 0
    assert 'role "airflow" already exists' in done.stderr
