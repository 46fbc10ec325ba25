"""A launcher for a real Airflow in a folder: four components, LocalExecutor, started in about ten seconds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import requests

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import airflow_settings, pid_file
from airflow_aiflow.local.airflow_client import AirflowClient, heartbeats_since
from airflow_aiflow.local.folder_server import FolderServer
from airflow_aiflow.local.ports import LOOPBACK, free_port, keep_or_find, require_free
from airflow_aiflow.local.private_file import read_json, write_json
from airflow_aiflow.local.process import spawn, stop, tail
from airflow_aiflow.local.recovery_bundle import recovery_options

#: Seconds until all components must be healthy: about ten on two quiet cores, far more on a loaded machine.
START_TIMEOUT = 180.0
START_POLL = 0.1
#: Seconds for all components to end; they are killed inside before that.
STOP_GRACE = 15.0


class AirflowServer(FolderServer):
    """One Airflow, its state in one folder.

    :param folder: Airflow's home; made if it is missing.
    :param dags_folder: where the DAG files are.
    :param port: port of API and UI; None keeps the last one where it is free, else finds one.
    :param options: further Airflow options by ``section.name``; they win over the stack's own.
    :param environment: further environment variables, for the tasks.
    :param recovery: whether it runs the recovery DAG.
    :param owned: end Airflow when this process ends, however it ends.
    """

    what = "Airflow"

    def __init__(
        self,
        folder: Path,
        dags_folder: Path,
        port: int | None = None,
        *,
        options: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        recovery: bool = False,
        owned: bool = True,
    ) -> None:
        super().__init__(folder, "logs/airflow.log", port, owned=owned)
        self.dags_folder = dags_folder.absolute()
        self.environment: dict[str, str] = {}
        self._options = dict(options or {})
        self._extra = dict(environment or {})
        self._recovery = recovery
        self._pid_file = self.folder / "server.json"

    @property
    def url(self) -> str:
        """Give the address of UI and API."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def admin_password(self) -> str:
        """Give the password of the user ``admin``."""
        return airflow_settings.stack_secrets(self.folder)["admin_password"]

    def client(self) -> AirflowClient:
        """Give a client that logs in as ``admin``."""
        return AirflowClient(self.url, airflow_settings.ADMIN, self.admin_password)

    def components(self) -> dict[str, int]:
        """Give the pid of each component."""
        listed = read_json(self.folder / "components.json") or {}
        return {name: int(facts["pid"]) for name, facts in listed.items()}

    def prepare(self) -> None:
        """Reserve folder and port, and begin to import: needs no database yet.

        :raises StackError: another process uses the folder, or the port is busy.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock.acquire()
        try:
            self._end_leftover()
            for name in ("logs", "plugins"):
                (self.folder / name).mkdir(exist_ok=True)
            if self._wanted_port is not None:
                require_free(self._wanted_port, "Airflow")
            self._port = self._wanted_port or keep_or_find(pid_file.recall(self._pid_file).get("port"))
            words = airflow_settings.stack_secrets(self.folder)
            write_json(self.folder / "passwords.json", {airflow_settings.ADMIN: words["admin_password"]})
            self._process = spawn(
                [sys.executable, "-P", "-m", "airflow_aiflow.local.airflow_fork", "--folder", str(self.folder)],
                log=self.log,
                env=airflow_settings.clean_environment(os.environ),
                cwd=self.folder,
                owned=self._owned,
                # It ends the components itself; killed outright it would leave executor workers behind.
                death_signal=signal.SIGTERM,
                stdin=subprocess.PIPE,
            )
            pid_file.remember(self._pid_file, self.pid, port=self._port)
        except BaseException:
            self.stop()
            raise

    def start(self, database_url: str, connections: Mapping[str, Mapping[str, Any]]) -> None:
        """Start Airflow and wait until every component is healthy.

        :param database_url: the metadata database, for SQLAlchemy.
        :param connections: Airflow connections by id, in their JSON form.
        :raises StackError: a component did not come up; the end of the log is in the message.
        """
        if self._process is None:
            self.prepare()
        try:
            started = datetime.now(UTC)
            self.environment = self._build_environment(database_url, connections)
            assert self._process is not None
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(self.environment).encode() + b"\n")
                self._process.stdin.close()
            self._wait_healthy(started)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every component and everything under them; again is harmless."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            stop(process, ask=signal.SIGTERM, grace=STOP_GRACE)
            self._kill_groups()
        self._lock.release()

    def _build_environment(self, database_url: str, connections: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        words = airflow_settings.stack_secrets(self.folder)
        options = airflow_settings.airflow_options(self.folder, self.dags_folder, self.port, database_url, words)
        # Nobody listens there: task logs are read from the folder. Another Airflow's log server must not be asked.
        options |= {f"logging.{kind}_log_server_port": str(free_port()) for kind in ("worker", "trigger")}
        if self._recovery:
            options |= recovery_options(self.folder, self.dags_folder)
            # Recovery finds a dead task in seconds: Airflow's own look, longer than the lease, is left behind it.
            options["scheduler.task_instance_heartbeat_timeout"] = "60"
        return {
            "AIRFLOW_HOME": str(self.folder),
            **airflow_settings.as_environment({**options, **self._options}),
            **airflow_settings.connections_as_environment(connections),
            **self._extra,
        }

    def _wait_healthy(self, started: datetime) -> None:
        client = self.client()
        deadline = time.monotonic() + START_TIMEOUT
        health: dict[str, Any] = {}
        warm = False
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise StackError(f"Airflow ended while it started; {self._log_ends()}")
            try:
                health = client.health()
                if not warm:
                    client.warm_up()
                    warm = True
            except requests.RequestException:
                time.sleep(START_POLL)
                continue
            if heartbeats_since(health, started):
                return
            time.sleep(START_POLL)
        raise StackError(f"Airflow was not healthy within {START_TIMEOUT:.0f} s: {health}; {self._log_ends()}")

    def _log_ends(self) -> str:
        logs = sorted(self.log.parent.glob("*.log"))
        return "the ends of its logs:\n" + "\n".join(f"--- {log}\n{tail(log, 12)}" for log in logs)

    def _end_leftover(self) -> None:
        """End what a crashed owner left: the keeper, and groups of components whose keeper died with it."""
        pid_file.end_left(self._pid_file, ask=signal.SIGTERM, grace=STOP_GRACE)
        self._kill_groups()

    def _kill_groups(self) -> None:
        """Kill what is left of the components' sessions.

        A session number can't be given to a stranger while a member lives; one that is empty may, so a member must
        also have our folder as its working directory.
        """
        groups = set(self.components().values())
        if not groups:
            return
        killed = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.getsid(process.pid) in groups and Path(process.cwd()) == self.folder:
                    process.kill()
                    killed.append(process)
        psutil.wait_procs(killed, timeout=STOP_GRACE)
        (self.folder / "components.json").unlink(missing_ok=True)
