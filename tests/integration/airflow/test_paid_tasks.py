"""Budgets and models that say "not now", as Airflow's own task runner sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from airflow_aiflow.llm import retry
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local import stack_connections
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from tests.integration.airflow.conftest import Airflow

PAGES = """
@dag(schedule=None, start_date=dt.datetime(2026, 1, 1), dag_id="THE_DAG")
def the_dag():
    @task.durable(budget="BUDGET", retries=2, retry_delay=0)
    def read(flow: Flow) -> None:
        for number in range(9):
            flow.llm("page", f"The tenant pays on day {number}.", model_settings={"max_tokens": 40})
        seen.append(flow.spent.tokens_in + flow.spent.tokens_out)

    read()

the_dag()
"""


@pytest.fixture
def model(model_service: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelService]:
    """Give the stand-in model behind the default connection."""
    monkeypatch.setenv("AIRFLOW_CONN_PYDANTICAI_DEFAULT", json.dumps(stack_connections.model(model_service)))
    yield model_service
    PydanticAICaller().close()


def test_a_budget_fails_the_task_and_burns_no_retry(airflow: Airflow, model: ModelService) -> None:
    ran = airflow.run(PAGES.replace("BUDGET", "100 tokens"))
    assert ran.states == {"read": ["failed"]}
    assert 1 < len(model.requests()) < 9
    attempts = airflow.rows(
        "select count(*) from aiflow.attempt join aiflow.execution using (execution_id) where run_id = %(run)s", ran
    )
    assert attempts == [(1,)]
    [(spent,)] = airflow.rows("select tokens from aiflow.budget where run_id = %(run)s", ran)
    assert spent <= 100


def test_a_budget_that_is_large_enough_is_not_felt(airflow: Airflow, model: ModelService) -> None:
    ran = airflow.run(PAGES.replace("BUDGET", "50k tokens"))
    assert ran.states == {"read": ["success"]}
    [spent] = ran.seen
    assert airflow.rows("select tokens from aiflow.budget where run_id = %(run)s", ran) == [(spent,)]


def test_a_model_that_says_not_now_gives_the_slot_back_and_burns_no_retry(
    airflow: Airflow, model: ModelService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(retry, "SHORTEST_ABSENCE", 0.1)
    monkeypatch.setenv("AIRFLOW__AIFLOW__RESCHEDULE_DELAY", "1")
    model.set_faults(Fault("status", first=2 * retry.ATTEMPTS, status=429))
    ran = airflow.run(PAGES.replace("BUDGET", "50k tokens").replace("retries=2", "retries=0"))
    assert ran.states == {"read": ["success"]}
    assert len(model.requests()) == 2 * retry.ATTEMPTS + 9
    attempts = airflow.rows(
        "select number, sign from aiflow.attempt join aiflow.execution using (execution_id) where run_id = %(run)s"
        " order by attempt.fence",
        ran,
    )
    assert attempts == [(1, "first"), (1, "same"), (1, "same")]
