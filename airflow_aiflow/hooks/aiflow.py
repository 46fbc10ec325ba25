"""
The root of composition for task processes: from Airflow's connections and configuration to what a flow works with.

A process has one ledger pool and one artifact store for each connection; a forked child makes its own, for sockets
must not be shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook

from airflow_aiflow.config import flow_settings
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.hooks.supervisor import is_supervised

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_aiflow.durable.inbox import Inbox
    from airflow_aiflow.durable.ports import ArtifactStore, Host, Ledger
    from airflow_aiflow.durable.settings import FlowSettings
    from airflow_aiflow.llm.call import ModelCaller
    from airflow_aiflow.runtime.guard import GuardPlan
    from airflow_aiflow.runtime.session import Services
    from airflow_aiflow.storage.connections import Connections
    from airflow_aiflow.storage.payload_cipher import PayloadCipher
    from airflow_aiflow.storage.postgres_callbacks import PostgresCallbacks
    from airflow_aiflow.storage.postgres_cursors import PostgresCursors
    from airflow_aiflow.storage.postgres_events import PostgresEvents
    from airflow_aiflow.storage.postgres_figures import PostgresFigures
    from airflow_aiflow.storage.postgres_listen import EventListener
    from airflow_aiflow.storage.postgres_runs import PostgresRuns
    from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions
    from airflow_aiflow.storage.postgres_uploads import PostgresUploads
    from airflow_aiflow.storage.s3 import S3ArtifactStore
    from airflow_aiflow.storage.s3_settings import S3Settings

T = TypeVar("T")

#: Connections of an API server for its pages: each request asks some statements of a few milliseconds.
READERS = 6

_lock = threading.Lock()
_made: dict[tuple[int, str, str], Any] = {}


def _once_per_process(kind: str, conn_id: str, make: Callable[[], T]) -> T:
    key = (os.getpid(), kind, conn_id)
    with _lock:
        if key not in _made:
            _made[key] = make()
        found: T = _made[key]
        return found


def close_all() -> None:
    """Give back what this process has opened: for programs that go on after their flows, such as ``dag.test()``."""
    with _lock:
        mine = [key for key in _made if key[0] == os.getpid()]
        opened = [_made.pop(key) for key in mine]
    for one in opened:
        if hasattr(one, "close"):
            one.close()


class AiflowHook(BaseHook):
    """
    Give the ledger, the artifact store and everything else that a flow works with.

    :param ledger_conn_id: connection of type ``postgres``; ``None``: as ``[aiflow] ledger_conn_id`` says.
    :param artifacts_conn_id: connection of type ``minio`` or ``aws``; ``None``: as ``[aiflow] artifacts_conn_id`` says.
    """

    hook_name = "aiflow"

    def __init__(self, ledger_conn_id: str | None = None, artifacts_conn_id: str | None = None) -> None:
        super().__init__()
        self._ledger_conn_id = ledger_conn_id
        self._artifacts_conn_id = artifacts_conn_id

    @cached_property
    def settings(self) -> FlowSettings:
        """
        The settings of this deployment.

        :raises AiflowConfigError: if an option holds what can't be used.
        """
        return flow_settings()

    def get_conn(self) -> Ledger:
        """Give the ledger."""
        return self.ledger()

    def ledger(self) -> Ledger:
        """
        Give the ledger, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        conn_id = self._ledger_conn_id or self.settings.ledger_conn_id
        return _once_per_process("ledger", conn_id, lambda: open_ledger(conn_id))

    def inbox(self) -> Inbox:
        """
        Give the ledger as persons use it, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        conn_id = self._ledger_conn_id or self.settings.ledger_conn_id
        return _once_per_process("inbox", conn_id, lambda: open_inbox(conn_id))

    def figures(self) -> PostgresFigures:
        """
        Give what counts for dashboards, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        conn_id = self._ledger_conn_id or self.settings.ledger_conn_id
        return _once_per_process("figures", conn_id, lambda: open_figures(conn_id))

    def submissions(self) -> PostgresSubmissions:
        """
        Give what clients hand in, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions

        return self._on_ledger("submissions", PostgresSubmissions.connect)

    def cursors(self) -> PostgresCursors:
        """
        Give what long cursors of clients rest on, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_cursors import PostgresCursors

        return self._on_ledger("cursors", PostgresCursors.connect)

    def uploads(self) -> PostgresUploads:
        """
        Give what clients announced to upload, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_uploads import PostgresUploads

        return self._on_ledger("uploads", PostgresUploads.connect)

    def callbacks(self) -> PostgresCallbacks:
        """
        Give the callbacks that are to be sent, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_callbacks import PostgresCallbacks

        return self._on_ledger("callbacks", PostgresCallbacks.connect)

    def runs(self) -> PostgresRuns:
        """
        Give runs as people read them, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_runs import PostgresRuns

        return self._on_ledger("runs", PostgresRuns.connect)

    def events(self) -> PostgresEvents:
        """
        Give the events of runs, with the pool of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_events import PostgresEvents

        return self._on_ledger("events", lambda dsn: PostgresEvents.connect(dsn, self.cipher()))

    def listener(self) -> EventListener:
        """
        Give who hears that runs have news: a new one each time, not yet at work.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.postgres_listen import EventListener

        return EventListener(_ledger_conninfo(self._ledger_conn_id or self.settings.ledger_conn_id))

    def readers(self) -> Connections:
        """
        Give connections to the ledger for many who read at once, of this process.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        from airflow_aiflow.storage.connections import Connections

        return self._on_ledger("readers", lambda dsn: Connections(dsn, READERS))

    def _on_ledger(self, kind: str, connect: Callable[[str], T]) -> T:
        conn_id = self._ledger_conn_id or self.settings.ledger_conn_id
        return _once_per_process(kind, conn_id, lambda: connect(_ledger_conninfo(conn_id)))

    def artifact_store(self) -> ArtifactStore:
        """
        Give the artifact store.

        :raises AiflowConfigError: if the connection is not there or of another type.
        """
        conn_id = self._artifacts_conn_id or self.settings.artifacts_conn_id
        return _once_per_process("artifacts", conn_id, lambda: open_artifact_store(conn_id))

    def cipher(self) -> PayloadCipher:
        """Give what opens encrypted payloads."""
        from airflow_aiflow.storage.payload_cipher import PayloadCipher

        return PayloadCipher(self.settings.payload_keys)

    def models(self) -> ModelCaller:
        """
        Give who makes model calls.

        :raises AiflowConfigError: if the extra ``llm`` is not installed.
        """
        from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller

        return PydanticAICaller()

    def services(self, host: Host) -> Services:
        """
        Put together what a flow works with.

        :param host: what runs the task.
        """
        from airflow_aiflow.hooks.stats import AirflowStats
        from airflow_aiflow.runtime.clock import SystemClock
        from airflow_aiflow.runtime.session import Services

        ledger = self.ledger()
        return Services(
            ledger=ledger,
            store=self.artifact_store,
            host=host,
            settings=self.settings,
            clock=SystemClock(),
            models=self.models,
            guard=_guard_plan(ledger) if self.settings.guard and is_supervised() else None,
            stats=AirflowStats(),
        )


def _guard_plan(ledger: Ledger) -> GuardPlan | None:
    from airflow_aiflow.storage.postgres import PostgresLedger

    if not isinstance(ledger, PostgresLedger):
        return None
    from airflow_aiflow.runtime.guard import GuardPlan, can_guard

    return GuardPlan(ledger.conninfo) if can_guard() else None


def open_ledger(conn_id: str) -> Ledger:
    """
    Open the ledger behind a connection.

    :param conn_id: of type ``postgres``.
    :raises AiflowConfigError: if the connection is not there or of another type.
    """
    from airflow_aiflow.storage.postgres import PostgresLedger

    return PostgresLedger.connect(_ledger_conninfo(conn_id), tells=True)


def open_inbox(conn_id: str) -> Inbox:
    """
    Open the ledger behind a connection as persons use it.

    :param conn_id: of type ``postgres``.
    :raises AiflowConfigError: if the connection is not there or of another type.
    """
    from airflow_aiflow.storage.postgres_inbox import PostgresInbox

    return PostgresInbox.connect(_ledger_conninfo(conn_id))


def open_figures(conn_id: str) -> PostgresFigures:
    """
    Open the ledger behind a connection as dashboards see it.

    :param conn_id: of type ``postgres``.
    :raises AiflowConfigError: if the connection is not there or of another type.
    """
    from airflow_aiflow.storage.postgres_figures import PostgresFigures

    return PostgresFigures.connect(_ledger_conninfo(conn_id))


def _ledger_conninfo(conn_id: str) -> str:
    from airflow_aiflow.hooks.conninfo import ledger_conninfo

    return ledger_conninfo(existing_connection(conn_id, "the ledger", "postgresql://aiflow:PASSWORD@HOST:5432/aiflow"))


def open_artifact_store(conn_id: str) -> S3ArtifactStore:
    """
    Open the artifact store behind a connection; credentials that the server refuses are looked up once more.

    :param conn_id: of type ``minio`` or ``aws``.
    :raises AiflowConfigError: if the connection is not there, or a field is missing or wrong.
    """
    from airflow_aiflow.storage.artifacts_connection import settings_from_connection
    from airflow_aiflow.storage.s3 import S3ArtifactStore

    def settings() -> S3Settings:
        example = "minio://KEY:SECRET@HOST:9000/BUCKET"
        return settings_from_connection(existing_connection(conn_id, "the artifact store", example))

    return S3ArtifactStore(settings(), renew=settings)


def existing_connection(conn_id: str, what: str, example: str) -> Connection:
    """
    Get a connection, or say how to make it.

    :param conn_id: its id.
    :param what: what it is for.
    :param example: its value as a URI, without a secret.
    :raises AiflowConfigError: if it is not there.
    """
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise missing_connection(conn_id, what, example) from error


async def awaited_connection(conn_id: str, what: str, example: str) -> Connection:
    """
    Do the same in a trigger, where nothing may block.

    :param conn_id: its id.
    :param what: what it is for.
    :param example: its value as a URI, without a secret.
    :raises AiflowConfigError: if it is not there.
    """
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException as error:
        raise missing_connection(conn_id, what, example) from error


def missing_connection(conn_id: str, what: str, example: str) -> AiflowConfigError:
    """
    Say that a connection is not there, and how to make it.

    :param conn_id: its id.
    :param what: what it is for.
    :param example: its value as a URI, without a secret.
    """
    return AiflowConfigError(
        f"the connection '{conn_id}' ({what}) is not defined. Make it in the UI under Admin > Connections, or set "
        f"AIRFLOW_CONN_{conn_id.upper()}='{example}'; `aiflow up` starts a stack that has it"
    )
