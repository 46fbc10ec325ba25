"""The embedded PostgreSQL: starts, restarts after every kind of death, keeps rights and passwords tight."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import psycopg
import pytest

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.postgres_binaries import system_folders
from airflow_aiflow.local.process import SELF, RunAs, run
from airflow_aiflow.local.stack import make_home


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path / "pg")
    server.start()
    yield server
    server.stop()


def test_roles_have_what_they_need_and_no_more(postgres_server: PostgresServer) -> None:
    owner_dsn = postgres_server.fresh_database()
    name = psycopg.conninfo.conninfo_to_dict(owner_dsn)["dbname"]
    assert isinstance(name, str)
    with psycopg.connect(owner_dsn) as owner:
        owner.execute("CREATE SCHEMA aiflow")
        owner.execute("CREATE TABLE aiflow.thing (id bigint GENERATED ALWAYS AS IDENTITY, word text)")
        owner.execute("CREATE FUNCTION aiflow.two() RETURNS int LANGUAGE sql AS 'SELECT 2'")
    with psycopg.connect(postgres_server.dsn(name, "aiflow"), autocommit=True) as user:
        user.execute("INSERT INTO aiflow.thing (word) VALUES ('a')")
        user.execute("UPDATE aiflow.thing SET word = 'b'")
        assert user.execute("SELECT id, word FROM aiflow.thing").fetchall() == [(1, "b")]
        assert user.execute("SELECT aiflow.two()").fetchone() == (2,)
        assert user.execute("SHOW synchronous_commit").fetchone() == ("on",)
        user.execute("DELETE FROM aiflow.thing")
        for ddl in ("DROP TABLE aiflow.thing", "CREATE TABLE aiflow.other ()", "TRUNCATE aiflow.thing"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                user.execute(ddl)
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(postgres_server.dsn(name, "airflow"))
    with psycopg.connect(postgres_server.dsn("airflow", "airflow"), autocommit=True) as airflow:
        airflow.execute("CREATE TABLE public.mine ()")
        airflow.execute("DROP TABLE public.mine")


def test_every_fresh_database_is_another_one(postgres_server: PostgresServer) -> None:
    assert postgres_server.fresh_database() != postgres_server.fresh_database()


def test_a_wrong_password_is_refused(postgres_server: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_server.dsn(), password="wrong")


def test_listens_on_loopback_only(postgres_server: PostgresServer) -> None:
    addresses = {
        connection.laddr
        for connection in psutil.Process(postgres_server.pid).net_connections("all")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {("127.0.0.1", postgres_server.port)}


def test_passwords_are_for_the_owner_alone(server: PostgresServer) -> None:
    mode = stat.S_IMODE((server.folder / "passwords.json").stat().st_mode)
    assert mode == 0o600
    assert not (server.folder / "initdb.password").exists()
    for secret in (server.password("postgres"), server.password("aiflow")):
        assert secret not in server.log.read_text()


def test_a_stop_and_a_start_keep_address_and_rows(server: PostgresServer) -> None:
    dsn = server.dsn("aiflow", "aiflow_owner")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    server.start()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


@pytest.mark.parametrize("round_", range(3))
def test_a_kill_loses_no_committed_row(server: PostgresServer, round_: int) -> None:
    dsn = server.dsn("aiflow", "aiflow_owner")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    server.start()
    with psycopg.connect(server.dsn("aiflow", "aiflow_owner")) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_dies_with_its_owner_and_starts_again(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import threading, time
        from pathlib import Path
        from airflow_aiflow.local.postgres import PostgresServer
        server = PostgresServer(Path({str(tmp_path / "pg")!r}))
        # Started from a thread that ends: the server must die with the process, not with the thread.
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        print(server.pid, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        postmaster = psutil.Process(int(owner.stdout.readline()))
        with pytest.raises(StackError, match=rf"in use by process {owner.pid}"):
            PostgresServer(tmp_path / "pg").start()
        assert postmaster.status() != psutil.STATUS_ZOMBIE
        owner.kill()
    gone = [process.pid for process in psutil.wait_procs([postmaster], timeout=20)[0]]
    assert gone == [postmaster.pid] or postmaster.status() == psutil.STATUS_ZOMBIE
    with PostgresServer(tmp_path / "pg") as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_left_behind_is_ended_first(tmp_path: Path) -> None:
    """An owner that asked for a server of its own life and crashed leaves it running."""
    program = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from airflow_aiflow.local.postgres import PostgresServer
        server = PostgresServer(Path({str(tmp_path / "pg")!r}), owned=False)
        server.start()
        print(server.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    owner = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    left = psutil.Process(int(owner.stdout))
    assert left.is_running()
    assert left.status() != psutil.STATUS_ZOMBIE
    with PostgresServer(tmp_path / "pg") as server:
        assert server.pid != left.pid
        assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_a_pid_file_that_names_a_stranger_blocks_nothing(server: PostgresServer) -> None:
    """After a reboot the pid of the old server may belong to another program of the same user."""
    pid_file = server.data / "postmaster.pid"
    content = pid_file.read_text().splitlines()
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    content[0] = str(os.getpid())
    pid_file.write_text("\n".join(content) + "\n")
    server.start()
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_half_an_initdb_is_not_taken_for_a_cluster(tmp_path: Path) -> None:
    workshop = tmp_path / "pg" / "data.partial"
    workshop.mkdir(parents=True)
    (workshop / "PG_VERSION").write_text("18\n")
    with PostgresServer(tmp_path / "pg") as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not workshop.exists()


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(StackError, match=f"port {port} for PostgreSQL is in use"):
            PostgresServer(tmp_path / "pg", port).start()


def test_a_port_taken_since_the_last_start_is_replaced(server: PostgresServer) -> None:
    old = server.port
    server.stop()
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", old))
        holder.listen()
        server.start()
        assert server.port != old


def test_data_of_another_release_is_refused_by_name(server: PostgresServer) -> None:
    server.stop()
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(StackError, match="written by PostgreSQL 12"):
        server.start()


def test_lost_passwords_are_said(server: PostgresServer) -> None:
    server.stop()
    (server.folder / "passwords.json").unlink()
    with pytest.raises(StackError, match=r"passwords\.json is missing"):
        server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user")
def test_root_without_user_namespaces_runs_it_as_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid_namespaces(argv: Sequence[str], *, run_as: RunAs = SELF, cwd: Path | None = None) -> object:
        if run_as.namespace:
            return subprocess.CompletedProcess(argv, 1, "", "Operation not permitted")
        return run(argv, run_as=run_as, cwd=cwd)

    monkeypatch.setattr("airflow_aiflow.local.postgres.run", forbid_namespaces)
    home = Path(tempfile.mkdtemp(prefix="aiflow-nobody-"))
    try:
        with pytest.raises(StackError, match=f"user 'nobody' can't enter {home}"):
            PostgresServer(home / "pg").start()
        home.chmod(0o755)
        with PostgresServer(home / "pg") as server, psycopg.connect(server.dsn()) as connection:
            assert psutil.Process(server.pid).username() == "nobody"
            assert connection.execute("SELECT 1").fetchone() == (1,)
        make_home(home / "state")
        with PostgresServer(home / "state" / "postgres") as server:
            assert psutil.Process(server.pid).username() == "nobody"
        # Later starts keep the user who owns the files, also where a namespace would be possible.
        monkeypatch.undo()
        with PostgresServer(home / "pg") as server:
            assert psutil.Process(server.pid).username() == "nobody"
    finally:
        shutil.rmtree(home)


@pytest.mark.skipif(not any(folder.is_dir() for folder in system_folders()), reason="no PostgreSQL of the system here")
def test_programs_of_the_system_serve_as_well(tmp_path: Path) -> None:
    folder = next(iter(system_folders()))
    with (
        PostgresServer(tmp_path / "pg", bin_dir=folder) as server,
        psycopg.connect(server.dsn("airflow", "airflow"), autocommit=True) as connection,
    ):
        connection.execute("CREATE TABLE public.mine ()")
    # The wheel's release differs: without the system's programs the folder is refused, with them it is found by itself.
    with PostgresServer(tmp_path / "pg") as server:
        assert psycopg.connect(server.dsn()).info.server_version // 10000 == int(
            (server.data / "PG_VERSION").read_text()
        )
