"""The whole embedded stack: all parts started side by side, kept running, and ended together.

State lives under one folder (``.aiflow``). One process owns the stack; whatever way it ends, its children end with it,
and whatever a crash left is cleared away by the next start before anything new begins.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import pid_file, postgres_roles, stack_connections
from airflow_aiflow.local.airflow_server import AirflowServer
from airflow_aiflow.local.airflow_settings import connections_as_environment
from airflow_aiflow.local.env_file import write_env
from airflow_aiflow.local.objectstore import ObjectStoreServer, find_weed
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.postgres_binaries import INSTALL_HINT, find_binaries
from airflow_aiflow.local.private_file import FolderLock
from airflow_aiflow.local.process import ProcessIdentity
from airflow_aiflow.local.service import MailService, ModelService, RecordsService

STATE_FILE = "stack.json"
ENV_FILE = "env"
#: A part that ended so often will not stay up by trying.
MOST_RESTARTS = 5

Report = Callable[[str, float], None]


class Part(Protocol):
    """One server of the stack."""

    @property
    def pid(self) -> int:
        """Give its pid; an error where it does not run."""

    def stop(self) -> None:
        """End it; again is harmless."""


@dataclass(frozen=True)
class StackPlan:
    """What to start and where.

    :param home: folder of all state.
    :param dags_folder: where the DAG files are.
    :param ports: wished ports by part (``airflow``, ``postgres``, ``objectstore``, ``model``, ``mail``, ``records``).
    :param airflow_options: further Airflow options by ``section.name``.
    :param environment: further environment variables for Airflow and its tasks.
    :param with_airflow: whether Airflow is started at all.
    :param recovery: whether Airflow runs the recovery DAG, also where no file in ``dags_folder`` makes it.
    """

    home: Path
    dags_folder: Path
    ports: Mapping[str, int] = field(default_factory=dict)
    airflow_options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    with_airflow: bool = True
    recovery: bool = False


def check_requirements() -> None:
    """Refuse to begin where something to run is not installed.

    :raises StackError: names what is missing and how to get it.
    """
    find_binaries()
    find_weed()
    if importlib.util.find_spec("aiosmtpd") is None:
        raise StackError(f"the mail sink needs aiosmtpd: {INSTALL_HINT}")


class Stack:
    """One stack, owned by this process.

    :param plan: what to start and where.
    """

    def __init__(self, plan: StackPlan) -> None:
        self.plan = plan
        self.home = plan.home.absolute()
        ports = plan.ports
        self.postgres = PostgresServer(self.home / "postgres", ports.get("postgres"))
        self.object_store = ObjectStoreServer(self.home / "objectstore", ports.get("objectstore"))
        self.model = ModelService(self.home / "model", ports.get("model"))
        self.mail = MailService(self.home / "mail", ports.get("mail"))
        self.records = RecordsService(self.home / "records", ports.get("records"))
        self.airflow = AirflowServer(
            self.home / "airflow",
            plan.dags_folder,
            ports.get("airflow"),
            options=plan.airflow_options,
            recovery=plan.recovery,
            environment=plan.environment,
        )
        self.environment: dict[str, str] = {}
        self._lock = FolderLock(self.home / "lock")
        self._restarts: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def parts(self) -> dict[str, Part]:
        """Give the servers by name."""
        servers: dict[str, Part] = {
            "postgres": self.postgres,
            "objectstore": self.object_store,
            "model": self.model,
            "mail": self.mail,
            "records": self.records,
        }
        if self.plan.with_airflow:
            servers["airflow"] = self.airflow
        return servers

    def addresses(self) -> dict[str, str]:
        """Give each part's address; no secret is in it."""
        found = {
            "postgres": f"postgresql://127.0.0.1:{self.postgres.port}",
            "objectstore": f"http://{self.object_store.endpoint}",
            "model": self.model.base_url,
            "mail": f"smtp://127.0.0.1:{self.mail.port}",
            "records": self.records.base_url,
        }
        if self.plan.with_airflow:
            found["airflow"] = self.airflow.url
        return found

    def start(self, report: Report | None = None) -> None:
        """Start every part, the ledger's schema up to date, and wait until all are healthy.

        :param report: told each part's name and the seconds since the start when it is ready.
        :raises StackError: another process owns the stack, a port is busy, something is missing or failed.
        """
        began = time.monotonic()
        tell = report or (lambda name, seconds: None)
        check_requirements()
        make_home(self.home)
        self._lock.acquire()
        try:
            self._write_state("starting")
            if self.plan.with_airflow:
                self.airflow.prepare()
            self._start_servers(lambda name: tell(name, time.monotonic() - began))
            if self.plan.with_airflow:
                self._start_airflow()
                tell("airflow", time.monotonic() - began)
            self._write_env()
            self._write_state("running")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every part; again is harmless, and so is a stack that another process owns."""
        if not self._lock.held:
            return
        self._write_state("stopping")
        self.airflow.stop()
        servers: list[Part] = [self.object_store, self.model, self.mail, self.records]
        with ThreadPoolExecutor(len(servers)) as pool:
            for stopped in [pool.submit(server.stop) for server in servers]:
                stopped.result()
        self.postgres.stop()
        (self.home / STATE_FILE).unlink(missing_ok=True)
        self._lock.release()

    def mend(self) -> list[str]:
        """Start parts again that have ended by themselves.

        :return: their names.
        :raises StackError: one does not stay up.
        """
        ended = [name for name, part in self.parts().items() if ProcessIdentity.of(part.pid) is None]
        for name in ended:
            self._restarts[name] = self._restarts.get(name, 0) + 1
            if self._restarts[name] > MOST_RESTARTS:
                raise StackError(f"{name} does not stay up: see its log under {self.home / name}")
            self.parts()[name].stop()
            if name == "airflow":
                self.airflow.prepare()
                self._start_airflow()
            else:
                self._starts()[name]()
        if ended:
            self._write_env()
            self._write_state("running")
        return ended

    def _starts(self) -> dict[str, Callable[[], None]]:
        return {
            "postgres": self._start_postgres,
            "objectstore": self.object_store.start,
            "model": self.model.start,
            "mail": self.mail.start,
            "records": self.records.start,
        }

    def _start_servers(self, tell: Callable[[str], None]) -> None:
        starts = self._starts()
        with ThreadPoolExecutor(len(starts)) as pool:
            names = {pool.submit(start): name for name, start in starts.items()}
            for done in as_completed(names):
                done.result()
                tell(names[done])

    def _start_postgres(self) -> None:
        from airflow_aiflow.storage.migrate import upgrade

        self.postgres.start()
        upgrade(self.postgres.dsn(postgres_roles.AIFLOW, postgres_roles.AIFLOW_OWNER))

    def _start_airflow(self) -> None:
        dsn = self.postgres.dsn(postgres_roles.AIRFLOW, postgres_roles.AIRFLOW)
        self.airflow.start(dsn.replace("postgresql://", "postgresql+psycopg2://", 1), self.connections())

    def connections(self) -> dict[str, dict[str, Any]]:
        """Give the Airflow connections by id."""
        found = {
            "aiflow_ledger": stack_connections.ledger(self.postgres),
            "aiflow_artifacts": stack_connections.artifacts(self.object_store),
            "pydanticai_default": stack_connections.model(self.model),
            "smtp_default": stack_connections.mail(self.mail),
            "records": stack_connections.records(self.records),
        }
        if self.plan.with_airflow:
            found["aiflow_api"] = stack_connections.api(self.airflow.port, self.airflow.admin_password)
        return found

    def _write_env(self) -> None:
        connections = connections_as_environment(self.connections())
        self.environment = {**connections, **(self.airflow.environment if self.plan.with_airflow else {})}
        write_env(self.home / ENV_FILE, self.environment)

    def _write_state(self, state: str) -> None:
        facts: dict[str, Any] = {"state": state, "dags_folder": str(self.plan.dags_folder.absolute())}
        if state == "running":
            facts["parts"] = {
                name: {"pid": self.parts()[name].pid, "address": address} for name, address in self.addresses().items()
            }
        pid_file.remember(self.home / STATE_FILE, os.getpid(), **facts)


def make_home(home: Path) -> None:
    """Make the folder of all state; others may pass through it (PostgreSQL as `nobody`), not look into it.

    :raises StackError: it can't be made or written to.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o711)
        (home / "lock").touch(mode=0o600)
        # A lock file of an earlier start can be touched in a folder that takes no new files.
        if not os.access(home, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise StackError(
            f"{home} can't be used for the stack's state ({error.strerror}): choose another --home"
        ) from error
