"""Open what recovery works with, in a task or in a trigger: the ledger as recovery sees it, and Airflow's REST API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_aiflow.config import flow_settings
from airflow_aiflow.hooks.aiflow import awaited_connection, existing_connection
from airflow_aiflow.hooks.airflow_api import AirflowApi, api_of
from airflow_aiflow.hooks.conninfo import ledger_conninfo

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_aiflow.storage.postgres_doubts import PostgresDoubts
    from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
    from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions

LEDGER = ("the ledger", "postgresql://aiflow:PASSWORD@HOST:5432/aiflow")
API = ("Airflow's REST API", "http://USER:PASSWORD@HOST:8080")


@dataclass(frozen=True, slots=True)
class Doors:
    """
    Hold what recovery works with.

    :param ledger: knows what stalls.
    :param doubts: knows what somebody should decide.
    :param submissions: what clients handed in.
    :param api: asks and tells Airflow.
    """

    ledger: PostgresRecovery
    doubts: PostgresDoubts
    submissions: PostgresSubmissions
    api: AirflowApi

    def close(self) -> None:
        """Give the connections back."""
        for one in (self.ledger, self.doubts, self.submissions, self.api):
            one.close()


def open_doors(ledger_conn_id: str | None = None, api_conn_id: str | None = None) -> Doors:
    """
    Open them in a task.

    :param ledger_conn_id: connection of type ``postgres``; ``None``: as ``[aiflow] ledger_conn_id`` says.
    :param api_conn_id: connection of type ``http``; ``None``: as ``[aiflow] api_conn_id`` says.
    :raises AiflowConfigError: if a connection is not there, of another type or incomplete.
    """
    ledger, api = _conn_ids(ledger_conn_id, api_conn_id)
    return _doors(existing_connection(ledger, *LEDGER), existing_connection(api, *API))


async def await_doors(ledger_conn_id: str | None = None, api_conn_id: str | None = None) -> Doors:
    """
    Open them in a trigger.

    :param ledger_conn_id: connection of type ``postgres``; ``None``: as ``[aiflow] ledger_conn_id`` says.
    :param api_conn_id: connection of type ``http``; ``None``: as ``[aiflow] api_conn_id`` says.
    :raises AiflowConfigError: if a connection is not there, of another type or incomplete.
    """
    import asyncio

    ledger, api = _conn_ids(ledger_conn_id, api_conn_id)
    found = [await awaited_connection(ledger, *LEDGER), await awaited_connection(api, *API)]
    # Imports and certificates take a while that other triggers must not wait for.
    return await asyncio.to_thread(_doors, *found)


def _conn_ids(ledger_conn_id: str | None, api_conn_id: str | None) -> tuple[str, str]:
    settings = flow_settings()
    return ledger_conn_id or settings.ledger_conn_id, api_conn_id or settings.api_conn_id


def _doors(ledger: Connection, api: Connection) -> Doors:
    from airflow_aiflow.storage.postgres_doubts import PostgresDoubts
    from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
    from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions

    dsn = ledger_conninfo(ledger)
    opened = api_of(
        f"connection '{api.conn_id}'",
        conn_type=api.conn_type,
        schema=api.schema,
        host=api.host,
        port=api.port,
        login=api.login,
        password=api.password,
        extra=api.extra_dejson,
    )
    return Doors(PostgresRecovery.connect(dsn), PostgresDoubts.connect(dsn), PostgresSubmissions.connect(dsn), opened)
