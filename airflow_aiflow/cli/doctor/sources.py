"""
What the checks read, each thing once: connections, configuration, clocks, the spool.

Connections come from the environment, else from the embedded stack; Airflow's options as Airflow reads them here. Not
covered: connections that live in Airflow's database or a secret backend.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_aiflow.cli.api_address import VARIABLE as API
from airflow_aiflow.cli.api_address import find_api
from airflow_aiflow.cli.doctor.artifacts import keeps
from airflow_aiflow.cli.doctor.finding import Finding, Source, UnreadError
from airflow_aiflow.cli.doctor.settings import number
from airflow_aiflow.cli.ledger_address import ENV_FILE, connection_fields, find_ledger, stack_in_mind
from airflow_aiflow.cli.ledger_address import VARIABLE as LEDGER
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.storage.schema import EXPECTED

if TYPE_CHECKING:
    from airflow_aiflow.hooks.airflow_api import AirflowApi
    from airflow_aiflow.storage.ledger_probe import ClockFacts, LedgerProbe, RoleFacts
    from airflow_aiflow.storage.s3 import S3ArtifactStore
    from airflow_aiflow.storage.s3_probe import ProbeReport

ARTIFACTS = "AIRFLOW_CONN_AIFLOW_ARTIFACTS"

#: Seconds for which a store that does not answer is asked again: a person waits.
STORE_PATIENCE = 3.0


class SupportsClose(Protocol):
    """What is given back."""

    def close(self) -> None:
        """Give it back."""


class Sources:
    """
    Read what the checks need.

    :param options: with ``dsn``, ``home`` and ``recovery_dag``.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.recovery_dag: str = options.recovery_dag
        self._options = options
        self.dsn: Source[str] = Source("ledger.address", lambda: find_ledger(options))
        self.probe: Source[LedgerProbe] = Source("ledger.server", self._probe)
        self.role: Source[RoleFacts] = Source("ledger.server", lambda: self.probe.get().role())
        self.revision: Source[str | None] = Source("ledger.schema", lambda: self.probe.get().revision())
        self.clock: Source[ClockFacts] = Source("clock.database", lambda: self.probe.get().clock())
        self.store: Source[S3ArtifactStore] = Source("artifacts.address", self._store)
        self.kept: Source[Finding] = Source("artifacts.store", lambda: keeps(self.store.get()))
        self.report: Source[ProbeReport] = Source("artifacts.conditions", self._report)
        self.api: Source[AirflowApi] = Source("api.address", self._api)
        self.answering: Source[AirflowApi] = Source("api.answers", self._answering)

    def tables(self) -> LedgerProbe:
        """
        Give the ledger, where its tables are the ones that this code knows.

        :raises UnreadError: else; ``ledger.schema`` tells.
        """
        if self.revision.get() != EXPECTED:
            raise UnreadError("not checked: see ledger.schema")
        return self.probe.get()

    def option(self, name: str) -> str:
        """
        Read an option as Airflow does.

        :param name: ``section.option``.
        :raises AiflowConfigError: if Airflow's configuration can't be read, or has no such option.
        """
        section, _, option = name.partition(".")
        from airflow.sdk import conf

        try:
            found = conf.get(section, option, fallback=None)
        except Exception as why:  # a file that is no configuration, a command for a secret that fails
            raise AiflowConfigError(f"Airflow can't read [{section}] {option} here ({type(why).__name__})") from None
        if found is None:
            raise AiflowConfigError(f"Airflow has no option [{section}] {option} here")
        return str(found).strip()

    def seconds(self, name: str) -> float:
        """
        Read an option that is a number.

        :param name: ``section.option``.
        :raises AiflowConfigError: if it is none.
        """
        return number(self.option(name), name)

    def payload_keys(self) -> list[bytes]:
        """Give the keys that encrypt payloads."""
        return [key.strip().encode() for key in self.option("aiflow.payload_keys").split(",") if key.strip()]

    def spool(self) -> Path:
        """Give the folder of the spool."""
        named = self.option("aiflow.spool_dir")
        if named:
            return Path(named).expanduser()
        return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser() / "aiflow-spool"

    def execution_api(self) -> str:
        """Give the address that task processes use."""
        try:
            return self.option("core.execution_api_server_url")
        except AiflowConfigError:
            return f"{self.api.get().base_url}/execution/"

    def secrets(self) -> Iterator[str]:
        """Give what must never be printed, as far as it was read."""
        from psycopg.conninfo import conninfo_to_dict

        for dsn in self.dsn.read:
            yield str(conninfo_to_dict(dsn).get("password") or "")
        for store in self.store.read:
            yield store.settings.secret_key or ""
            yield store.settings.session_token or ""
        for variable in (LEDGER, ARTIFACTS, API):
            if value := os.environ.get(variable):
                yield _password(value)
        for name in ("aiflow.seal_key", "aiflow.payload_keys"):
            try:
                yield from self.option(name).split(",")
            except AiflowConfigError:
                continue

    def close(self) -> None:
        """Give back what was opened."""
        opened: list[SupportsClose] = [*self.probe.read, *self.store.read, *self.api.read]
        for one in opened:
            one.close()

    def _probe(self) -> LedgerProbe:
        from airflow_aiflow.storage.ledger_probe import LedgerProbe

        with stack_in_mind(self._options):
            return LedgerProbe.connect(self.dsn.get())

    def _store(self) -> S3ArtifactStore:
        from airflow_aiflow.local.env_file import read_env
        from airflow_aiflow.storage.artifacts_connection import PlainConnection, artifact_store

        where, value = ARTIFACTS, os.environ.get(ARTIFACTS)
        if not value:
            path = self._options.home / ENV_FILE
            where, value = f"{ARTIFACTS} in {path}", read_env(path).get(ARTIFACTS)
        if not value:
            raise AiflowConfigError(
                f"where is the artifact store? Set {ARTIFACTS} to a connection of type minio or aws, such as "
                "minio://KEY:SECRET@HOST:9000/BUCKET, or start the embedded stack by `aiflow up`"
            )
        fields = connection_fields(value, where)
        extra = fields.pop("extra")
        return artifact_store(
            PlainConnection(conn_id="aiflow_artifacts", extra_dejson=extra, **fields), patience=STORE_PATIENCE
        )

    def _report(self) -> ProbeReport:
        self.kept.get()
        return self.store.get().probe()

    def _answering(self) -> AirflowApi:
        api = self.api.get()
        api.request("GET", "/version")
        return api

    def _api(self) -> AirflowApi:
        api = find_api(self._options)
        if api is None:
            raise AiflowConfigError(
                f"where is Airflow? Recovery asks it by its REST API: set {API} to a connection of type http, such as "
                "http://USER:PASSWORD@HOST:8080, or start the embedded stack by `aiflow up`"
            )
        return api


def _password(value: str) -> str:
    try:
        return str(connection_fields(value, "a connection")["password"] or "")
    except AiflowConfigError:
        return ""
