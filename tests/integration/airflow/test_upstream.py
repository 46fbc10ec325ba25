"""What ran above a task is read by the REST API where the task API can't say, and gives the same evidence."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.hooks.upstream import upstream_digest
from tests.airflow_api import PASSWORD, AirflowStandIn, serving

RUN = ExecutionId("d", "manual__2026/11", "t")


def no_breadcrumbs(dag_id: str, run_id: str) -> Any:
    raise ConnectionError("the task API is gone")


def digest(above: set[str]) -> bytes | None:
    plain = SimpleNamespace(is_setup=False, is_teardown=False)
    dag = SimpleNamespace(get_task=lambda task_id: plain)
    task = SimpleNamespace(get_flat_relative_ids=lambda upstream: above, get_dag=lambda: dag)
    return upstream_digest(SimpleNamespace(get_task_breadcrumbs=no_breadcrumbs), task, RUN)


def test_the_rest_api_is_the_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [("load", 0, "success"), ("load", 1, "running"), ("beside", -1, "success"), ("skip", -1, "skipped")]
    with serving(AirflowStandIn(RUN.dag_id, RUN.run_id, instances, {})) as url:
        fields = {"conn_type": "http", "host": url, "login": "admin", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(fields))
        assert digest({"load", "skip"}) == digest_upstream([("load", 0, 1.5), ("skip", -1, 1.5)])
    assert digest({"load"}) is None, "an API that does not answer costs the evidence, not the task"
