"""How a connection of type http names Airflow's REST API."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.hooks.airflow_api import api_of, run_path

FIELDS: dict[str, Any] = {
    "conn_type": "http",
    "schema": None,
    "host": "airflow.example.com",
    "port": None,
    "login": "admin",
    "password": "secret",
    "extra": {},
}


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, "http://airflow.example.com"),
        ({"schema": "https", "port": 8080}, "https://airflow.example.com:8080"),
        ({"host": "https://airflow.example.com/team/", "schema": "http"}, "https://airflow.example.com/team"),
        ({"host": "https://airflow.example.com/team", "port": 8443}, "https://airflow.example.com:8443/team"),
        ({"host": "http://127.0.0.1:8080", "port": 9}, "http://127.0.0.1:8080"),
        ({"host": "[::1]", "port": 8080}, "http://[::1]:8080"),
    ],
)
def test_the_address(fields: dict[str, Any], address: str) -> None:
    api = api_of("here", **(FIELDS | fields))
    assert api.base_url == address
    api.close()


@pytest.mark.parametrize("fields", [{"login": None}, {"login": "", "password": None, "extra": {"token": "secret"}}])
def test_a_token_stands_alone(fields: dict[str, Any]) -> None:
    api = api_of("here", **(FIELDS | fields))
    assert api._client.headers["Authorization"] == "Bearer secret"
    api.close()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conn_type": "https"}, "type http, got 'https'"),
        ({"host": ""}, "the host is missing"),
        ({"password": None}, "a login with its password, or a token"),
        ({"host": "ftp://airflow"}, "http:// or https:// address"),
        ({"host": "http://admin:secret@airflow"}, "without a password"),
    ],
)
def test_what_can_t_be_used_is_told_without_its_secret(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(AiflowConfigError, match=message) as caught:
        api_of("connection 'aiflow_api'", **(FIELDS | fields))
    assert str(caught.value).startswith("connection 'aiflow_api': ")
    assert "secret" not in str(caught.value)


def test_an_empty_selection_is_never_sent() -> None:
    """C18: Airflow would take it for the whole run."""
    api = api_of("here", **FIELDS)
    with pytest.raises(ValueError, match="empty selection"):
        api.clear("d", "r", task_ids=[], dry_run=False)
    api.close()


def test_ids_are_quoted() -> None:
    assert run_path("a", "manual__2026/11:29+00") == "/dags/a/dagRuns/manual__2026%2F11%3A29%2B00"
