"""The Airflow connections of the stack, in Airflow's JSON form."""

from __future__ import annotations

from typing import Any

from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.airflow_settings import ADMIN
from airflow_aiflow.local.model_server import MODEL
from airflow_aiflow.local.objectstore import BUCKET, ObjectStoreServer
from airflow_aiflow.local.ports import LOOPBACK
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import MailService, ModelService, RecordsService

Connection = dict[str, Any]


def ledger(server: PostgresServer) -> Connection:
    """Give the ledger, for the role that may change rows only."""
    return {
        "conn_type": "postgres",
        "host": LOOPBACK,
        "port": server.port,
        "login": postgres_roles.AIFLOW,
        "password": server.password(postgres_roles.AIFLOW),
        "schema": postgres_roles.AIFLOW,
    }


def artifacts(server: ObjectStoreServer) -> Connection:
    """Give the artifact store."""
    host, _, port = server.endpoint.rpartition(":")
    return {
        "conn_type": "minio",
        "host": host,
        "port": int(port),
        "login": server.access_key,
        "password": server.secret_key,
        "extra": {"bucket": BUCKET, "region": server.region, "secure": False},
    }


def api(port: int, password: str) -> Connection:
    """Give Airflow's REST API."""
    return {
        "conn_type": "http",
        "schema": "http",
        "host": LOOPBACK,
        "port": port,
        "login": ADMIN,
        "password": password,
    }


def model(service: ModelService) -> Connection:
    """Give the stand-in model, over chat completions."""
    return {
        "conn_type": "pydanticai",
        "host": service.base_url,
        "password": service.api_key,
        "extra": {"model": f"openai-chat:{MODEL}"},
    }


def mail(service: MailService) -> Connection:
    """Give the mail sink; the client's own retries are off, since a repeated mail is a second mail."""
    return {
        "conn_type": "smtp",
        "host": LOOPBACK,
        "port": service.port,
        "extra": {
            "disable_ssl": True,
            "disable_tls": True,
            "from_email": "aiflow@example.com",
            "retry_limit": 0,
            "timeout": 10,
        },
    }


def records(service: RecordsService) -> Connection:
    """Give the record service; the headers in `extra` are what Airflow's HTTP hook sends."""
    return {
        "conn_type": "http",
        "schema": "http",
        "host": LOOPBACK,
        "port": service.port,
        "password": service.token,
        "extra": {"Authorization": f"Bearer {service.token}"},
    }
