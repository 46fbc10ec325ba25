"""``GET /aiflow/metrics`` as a real API server serves it: mounted, closed to strangers, over the right ledger."""

from __future__ import annotations

import requests

from airflow_aiflow.local.stack import Stack


def test_the_api_server_serves_the_ledgers_figures(airflow_stack: Stack) -> None:
    client = airflow_stack.airflow.client()
    assert client.request("GET", "/plugins/importErrors")["total_entries"] == 0  # logs in
    address = f"{airflow_stack.airflow.url}/aiflow/metrics"
    answer = client._session.get(address, timeout=30)
    assert answer.status_code == 200, answer.text
    assert "\naiflow_ledger_commit_seconds " in answer.text
    assert '\naiflow_executions{state="running"} ' in answer.text
    for headers in ({}, {"Authorization": "Bearer no"}):
        stranger = requests.get(address, timeout=30, headers=headers)
        assert stranger.status_code == 401
        assert "aiflow_" not in stranger.text
