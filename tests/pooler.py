"""A real PgBouncer before a real PostgreSQL, where the program is installed."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_aiflow.local.ports import LOOPBACK, free_port
from airflow_aiflow.local.process import SELF, RunAs, spawn, stop

PGBOUNCER = shutil.which("pgbouncer")

#: Fewer connections to the server than clients: a transaction often meets another server process than the one before.
SERVER_CONNECTIONS = 2


@contextmanager
def pooled(dsn: str, folder: Path, mode: str = "transaction") -> Iterator[str]:
    """
    Put a pooler before a database.

    :param dsn: the database's address.
    :param folder: where its files go.
    :param mode: for how long a client has a connection to the server: ``transaction`` or ``session``.
    :return: the address through the pooler.
    """
    assert PGBOUNCER is not None
    parts, port = conninfo_to_dict(dsn), free_port()
    users, settings = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"{parts["user"]}" "{parts["password"]}"\n')
    settings.write_text(
        "\n".join(
            [
                "[databases]",
                f"{parts['dbname']} = host={parts['host']} port={parts['port']}",
                "[pgbouncer]",
                f"listen_addr = {LOOPBACK}",
                f"listen_port = {port}",
                "unix_socket_dir =",
                "auth_type = scram-sha-256",
                f"auth_file = {users}",
                f"pool_mode = {mode}",
                f"default_pool_size = {SERVER_CONNECTIONS}",
                "max_client_conn = 200",
            ]
        )
        + "\n"
    )
    # It refuses to run as root; in a user namespace it reads root's files without being root.
    run_as = RunAs(namespace=True) if os.geteuid() == 0 else SELF
    log = folder / "pgbouncer.log"
    process = spawn([PGBOUNCER, str(settings)], log=log, run_as=run_as)
    address = make_conninfo(dsn, host=LOOPBACK, port=port)
    try:
        deadline, never = time.monotonic() + 30, threading.Event()
        while True:
            try:
                psycopg.connect(address).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                never.wait(0.02)
        yield address
    finally:
        stop(process, ask=signal.SIGINT, grace=5)
