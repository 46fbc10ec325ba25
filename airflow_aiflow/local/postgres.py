"""A launcher for a real PostgreSQL in a folder: loopback TCP, scram, random passwords, root or not.

What must hold: a crash at any moment, of the server, of its owner or of both, leaves a folder that starts again with
every committed row; ``initdb`` works in a folder beside the final one, so half a cluster is never taken for a whole
one. PostgreSQL refuses to run as root, so root runs it in a user namespace (the files stay root's, any folder will
do), or, where containers forbid that, as ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import psycopg

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import postgres_roles as roles
from airflow_aiflow.local.folder_server import StartedFolderServer
from airflow_aiflow.local.ports import LOOPBACK, free_port, keep_or_find, require_free
from airflow_aiflow.local.postgres_binaries import PostgresBinaries, find_binaries, inspect
from airflow_aiflow.local.private_file import read_json, write_json, write_private
from airflow_aiflow.local.process import SELF, ProcessIdentity, RunAs, end_stranger, run, spawn, stop, tail

#: Seconds until the server must accept connections; crash recovery of a folder of this size takes about one second.
START_TIMEOUT = 60.0
#: Seconds between two tries to connect while the server starts (ready after 0.03 to 0.17 s).
START_POLL = 0.02
#: Seconds for a fast stop (0.01 to 0.07 s, more where a checkpoint is due); SIGKILL afterwards loses nothing committed.
STOP_GRACE = 15.0
#: Launches before giving up: the port found free can be taken by another program in between, and the children of a
#: killed postmaster hold its shared memory for a moment.
LAUNCHES = 5
#: Connections: Airflow's four components and their workers take about 60.
MAX_CONNECTIONS = 200


class PostgresServer(StartedFolderServer):
    """One PostgreSQL server, its state in one folder.

    :param folder: where data, passwords and log live; made if it is missing.
    :param port: TCP port; None keeps the last one where it is free, else finds one.
    :param bin_dir: folder of PostgreSQL's programs; None takes the wheel's, else the system's.
    :param owned: end the server when this process ends, however it ends.
    """

    what = "PostgreSQL"

    def __init__(
        self, folder: Path, port: int | None = None, *, bin_dir: Path | None = None, owned: bool = True
    ) -> None:
        super().__init__(folder, "postgres.log", port, owned=owned)
        self.data = self.folder / "data"
        self._bin_dir = bin_dir
        self._passwords: dict[str, str] = {}

    def password(self, role: str) -> str:
        """Give a role's password."""
        return self._passwords[role]

    def dsn(self, dbname: str = roles.AIFLOW, role: str = roles.AIFLOW) -> str:
        """Give the address of a database, the password in it.

        :param dbname: name of the database.
        :param role: role to log in as: ``airflow``, ``aiflow``, ``aiflow_owner`` or ``postgres``.
        """
        return f"postgresql://{role}:{self._passwords[role]}@{LOOPBACK}:{self.port}/{dbname}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections and has its roles and databases.

        :raises StackError: another process uses the folder, a port is busy, programs are missing, or the server failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock.acquire()
        try:
            binaries = self._choose_binaries()
            run_as = choose_user(binaries, self.data)
            self._load_passwords()
            self._end_leftover()
            if not self.data.exists():
                self._initialise(binaries, run_as)
            self._launch(binaries, run_as)
            self._provision()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server fast (open transactions are rolled back); again is harmless."""
        process, self._process = self._process, None
        if process is not None:
            stop(process, ask=signal.SIGINT, grace=STOP_GRACE)
        self._lock.release()

    def fresh_database(self, prefix: str = "fresh") -> str:
        """Create an empty database with a new name, owned by ``aiflow_owner``, and give the owner's address of it."""
        name = f"{prefix}_{uuid.uuid4().hex[:16]}"
        with self._superuser("postgres") as connection:
            roles.ensure_database(connection, name, roles.AIFLOW_OWNER)
        with self._superuser(name) as connection:
            roles.grant_ledger_rows(connection)
        return self.dsn(name, roles.AIFLOW_OWNER)

    def _superuser(self, dbname: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.dsn(dbname, roles.SUPERUSER), autocommit=True, connect_timeout=5)

    def _choose_binaries(self) -> PostgresBinaries:
        version_file = self.data / "PG_VERSION"
        data_major = int(version_file.read_text().split(".")[0]) if version_file.exists() else None
        if self._bin_dir is None:
            return find_binaries(data_major)
        found = inspect(self._bin_dir)
        if found is None:
            raise StackError(f"no PostgreSQL programs that run in {self._bin_dir}")
        if data_major not in (None, found.major):
            raise StackError(f"{self.data} was written by PostgreSQL {data_major}, {self._bin_dir} is {found.major}")
        return found

    def _load_passwords(self) -> None:
        file = self.folder / "passwords.json"
        stored = read_json(file)
        if stored is None:
            if self.data.exists():
                raise StackError(f"{file} is missing beside its data: delete {self.folder} to start anew")
            stored = {role: secrets.token_hex(16) for role in (roles.SUPERUSER, *roles.ROLES)}
            write_json(file, stored)
        self._passwords = {str(role): str(word) for role, word in stored.items()}

    def _end_leftover(self) -> None:
        """End a postmaster that a crashed owner left in our folder, and clear its pid file.

        The lock is ours, so nobody owns it. A pid file that names a stranger (the pid was used again) would make the
        server refuse to start.
        """
        pid_file = self.data / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().splitlines()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return
        left = ProcessIdentity.of(pid)
        if left is not None and _is_postmaster(pid, self.data):
            end_stranger(left, ask=signal.SIGINT, grace=STOP_GRACE)
        pid_file.unlink(missing_ok=True)

    def _initialise(self, binaries: PostgresBinaries, run_as: RunAs) -> None:
        workshop = self.folder / "data.partial"
        shutil.rmtree(workshop, ignore_errors=True)
        workshop.mkdir(mode=0o700)
        password_file = self.folder / "initdb.password"
        write_private(password_file, self._passwords[roles.SUPERUSER])
        if run_as.uid is not None and run_as.gid is not None:
            for path in (workshop, password_file):
                os.chown(path, run_as.uid, run_as.gid)
            # The folder itself must let the other user through; it is 0700 for root otherwise.
            self.folder.chmod(0o711)
        command = [binaries.initdb, "-D", str(workshop), "-U", roles.SUPERUSER, f"--pwfile={password_file}"]
        command += ["-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        try:
            answer = run(command, run_as=run_as, cwd=Path("/"))
        finally:
            password_file.unlink(missing_ok=True)
        if answer.returncode != 0:
            raise StackError(f"initdb failed in {self.folder}:\n{answer.stdout[-500:]}{answer.stderr[-2000:]}")
        workshop.rename(self.data)

    def _launch(self, binaries: PostgresBinaries, run_as: RunAs) -> None:
        port_file = self.folder / "port.json"
        if self._wanted_port is not None:
            require_free(self._wanted_port, "PostgreSQL")
            port = self._wanted_port
        else:
            port = keep_or_find((read_json(port_file) or {}).get("port"))
        for launch in range(1, LAUNCHES + 1):
            self._port = port
            self._process = self._spawn(binaries, run_as, port)
            if self._wait_ready():
                write_json(port_file, {"port": port})
                return
            if launch == LAUNCHES:
                break
            if self._wanted_port is None:
                port = free_port()
            time.sleep(0.2 * launch)
        raise StackError(f"PostgreSQL did not start in {self.folder}; the end of {self.log}:\n{tail(self.log)}")

    def _spawn(self, binaries: PostgresBinaries, run_as: RunAs, port: int) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(port),
            # No socket file: its path may hold 107 bytes at most, and a stale lock file beside it can block a start.
            "unix_socket_directories": "",
            "max_connections": str(MAX_CONNECTIONS),
            "timezone": "UTC",
            "log_timezone": "UTC",
            "cluster_name": "aiflow",
        }
        command = [binaries.postgres, "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return spawn(
            command,
            log=self.log,
            cwd=Path("/"),
            run_as=run_as,
            owned=self._owned,
            death_signal=signal.SIGINT,
        )

    def _wait_ready(self) -> bool:
        """Wait for the first connection.

        :return: False where the server ended by itself.
        :raises StackError: it neither ended nor accepted within the time-out.
        """
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            try:
                self._superuser("postgres").close()
            except psycopg.OperationalError:
                time.sleep(START_POLL)
            else:
                return True
        raise StackError(
            f"PostgreSQL in {self.folder} accepted no connection within {START_TIMEOUT:.0f} s; "
            f"the end of {self.log}:\n{tail(self.log)}"
        )

    def _provision(self) -> None:
        with self._superuser("postgres") as connection:
            roles.ensure_roles(connection, self._passwords)
            for name, owner in roles.DATABASES.items():
                roles.ensure_database(connection, name, owner)
        with self._superuser(roles.AIFLOW) as connection:
            roles.grant_ledger_rows(connection)


def _is_postmaster(pid: int, data: Path) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(str(data)) in arguments


def choose_user(binaries: PostgresBinaries, data: Path) -> RunAs:
    """Decide who runs the server.

    :param binaries: the programs, which that user must be able to run.
    :param data: the data folder; where it exists, its owner decides.
    :raises StackError: root can neither use a user namespace nor reach the folder as ``nobody``.
    """
    if os.geteuid() != 0:
        return SELF
    nobody = pwd.getpwnam("nobody")
    namespace = RunAs(namespace=True)
    other = RunAs(uid=nobody.pw_uid, gid=nobody.pw_gid)
    written_by_nobody = data.exists() and data.stat().st_uid == nobody.pw_uid
    if not written_by_nobody and run([binaries.postgres, "--version"], run_as=namespace).returncode == 0:
        return namespace
    for path in (binaries.folder, data.parent):
        closed = [each for each in (path, *path.parents) if each != data.parent and not each.stat().st_mode & 0o001]
        if closed:
            raise StackError(
                f"PostgreSQL does not run as root; user 'nobody' can't enter {closed[-1]} (needed for {path}), and "
                "this machine forbids user namespaces: start as an ordinary user, or use folders that others may enter"
            )
    if run([binaries.postgres, "--version"], run_as=other).returncode != 0:
        raise StackError(f"user 'nobody' can't run {binaries.postgres}: start as an ordinary user")
    return other
