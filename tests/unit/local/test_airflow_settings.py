"""The stack's Airflow options: names as Airflow reads them, and an environment free of anyone else's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from airflow_aiflow.local.airflow_client import heartbeats_since
from airflow_aiflow.local.airflow_settings import (
    airflow_options,
    as_environment,
    clean_environment,
    connections_as_environment,
)

WORDS = {"fernet_key": "f", "jwt_secret": "j", "api_secret_key": "a", "seal_key": "s", "admin_password": "p"}


def test_options_become_variables() -> None:
    assert as_environment({"core.dags_folder": "/d"}) == {"AIRFLOW__CORE__DAGS_FOLDER": "/d"}


def test_every_address_is_loopback_and_no_option_holds_the_password() -> None:
    options = airflow_options(Path("/h"), Path("/d"), 1234, "url", WORDS)
    assert options["api.host"] == "127.0.0.1"
    assert options["core.execution_api_server_url"] == "http://127.0.0.1:1234/execution/"
    assert "p" not in options.values()


def test_connections_become_variables() -> None:
    variables = connections_as_environment({"aiflow_ledger": {"conn_type": "postgres", "extra": {"a": 1}}})
    assert json.loads(variables["AIRFLOW_CONN_AIFLOW_LEDGER"]) == {"conn_type": "postgres", "extra": {"a": 1}}


def test_another_airflow_and_proxies_are_kept_out() -> None:
    given = {"AIRFLOW_HOME": "/x", "AIRFLOW__CORE__EXECUTOR": "X", "PYTHONDONTWRITEBYTECODE": "1", "A": "b"}
    assert clean_environment({**given, "no_proxy": "intranet"}) == {
        "A": "b",
        "no_proxy": "intranet,127.0.0.1,localhost",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def health(beat: str | None, status: str = "healthy") -> dict[str, object]:
    parts = {name: {"status": status, f"latest_{name}_heartbeat": beat} for name in PARTS}
    return {"metadatabase": {"status": "healthy"}, **parts}


PARTS = ("scheduler", "dag_processor", "triggerer")
STARTED = datetime(2026, 1, 2, tzinfo=UTC)


def test_health_by_a_heartbeat_of_the_start_before_does_not_count() -> None:
    assert heartbeats_since(health("2026-01-02T00:00:01Z"), STARTED)
    assert not heartbeats_since(health("2026-01-01T23:59:59Z"), STARTED)
    assert not heartbeats_since(health(None), STARTED)
    assert not heartbeats_since(health("2026-01-02T00:00:01Z", "unhealthy"), STARTED)
    assert not heartbeats_since({}, STARTED)
