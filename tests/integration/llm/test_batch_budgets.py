"""Budgets of ``flow.llm_batch`` on a real PostgreSQL, its attempts killed between the hold and the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from airflow_aiflow.exceptions import AttemptParked, BudgetExceededError
from airflow_aiflow.local.batch_api import BATCHES
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.testing import DurableTask
from tests.integration.llm.batch_workers import PROMPTS, a_task, body
from tests.integration.llm.conftest import Connect

#: Seconds that no run of workers needs, on the slowest machine.
ENOUGH = 300

#: Where an attempt is killed, by its run, and how many batches it has submitted by then.
SITES = {"before_intent": 0, "after_intent": 0, "after_act": 1, "before_record@story:2": 1, "before_finish": 1}

#: Tokens: fits the batch once, and not twice.
BUDGET = 3000


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


def spent(dsn: str, run: str) -> tuple[Any, ...]:
    """Give what a run's task has spent, what of it is unknown, what is held, and in how many holds."""
    with psycopg.connect(dsn) as behind:
        [row] = behind.execute(
            "select b.cost, b.tokens, b.unknown_tokens, coalesce(sum(h.tokens), 0), count(h)"
            " from aiflow.budget b left join aiflow.budget_hold h using (budget_id)"
            " where b.run_id = %s and b.name = '' group by b.budget_id",
            [run],
        ).fetchall()
    return row


def recorded(dsn: str, run: str) -> int:
    with psycopg.connect(dsn) as behind:
        [(tokens,)] = behind.execute(
            "select sum(tokens_in + tokens_out) from aiflow.step join aiflow.execution using (execution_id)"
            " where run_id = %s",
            [run],
        ).fetchall()
    return int(tokens)


@pytest.fixture(scope="module")
def killed(dsn: str, tmp_path_factory: pytest.TempPathFactory, stand_in_service: ModelService) -> list[Any]:
    """Run an attempt for each crash site; give how each ended."""
    file = tmp_path_factory.mktemp("workers") / "workers.json"
    jobs = [{"run": site, "site": site, "budget": f"{BUDGET} tokens"} for site in SITES]
    file.write_text(json.dumps({"dsn": dsn, "jobs": jobs}))
    extra = {"model": "openai-chat:stand-in"}
    connection = {"conn_type": "pydanticai", "host": stand_in_service.base_url, "extra": extra}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.llm.batch_workers", str(file)],
        check=True,
        capture_output=True,
        text=True,
        timeout=ENOUGH,
        env={
            **os.environ,
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW_CONN_PYDANTICAI_DEFAULT": json.dumps({**connection, "password": stand_in_service.api_key}),
        },
    )
    found: list[Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _run_until_done(task: DurableTask, body: Callable[[Flow], Any]) -> None:
    """Run attempt after attempt, until a killed one is surely gone and the batch has ended."""
    ends = task.clock.monotonic() + ENOUGH
    while task.clock.monotonic() < ends:
        try:
            task.run(body)
            return
        except AttemptParked:
            task.same_again()
            task.clock.wait(0.5)
    raise AssertionError(f"it never ended: {task.host.lines[-5:]}")


@pytest.mark.parametrize("site", SITES)
def test_what_a_killed_attempt_held_is_the_hold_of_the_next_one(
    dsn: str, killed: list[Any], stand_in: ModelService, connect: Connect, site: str
) -> None:
    assert str(killed[list(SITES).index(site)]).startswith("!no end"), killed
    cost, tokens, unknown, held, holds = spent(dsn, site)
    if SITES[site] and site != "after_act":
        assert (tokens > 0, unknown, held) == (True, 0, 0), "settled before the answers were recorded"
    else:
        assert (cost, tokens, unknown, holds) == (0, 0, 0, 1)
        assert BUDGET / 2 < held <= BUDGET
    before = len(stand_in.requests())
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    task = a_task(dsn, site, f"{BUDGET} tokens")
    task.retried()
    _run_until_done(task, body())
    submissions = sum(one.fields["path"] == BATCHES for one in stand_in.requests()[before:])
    assert submissions == 1 - SITES[site]
    assert spent(dsn, site) == (0, recorded(dsn, site), 0, 0, 0)


def test_it_stops_before_the_submission_and_a_raised_budget_goes_on_by_the_prices_for_batches(
    dsn: str, stand_in: ModelService, connect: Connect
) -> None:
    connect("priced", stand_in.base_url, "openai-chat:gpt-5-mini", password=stand_in.api_key)
    before, priced = len(stand_in.requests()), body(llm_conn_id="priced")
    task = a_task(dsn, "priced", "$0.001")
    with pytest.raises(BudgetExceededError, match=r"the budget of task task of dag, run priced is \$0.0010: \$0.0000"):
        task.run(priced)
    assert len(stand_in.requests()) == before
    task.budget = "$0.002"  # 30 answers of 40 tokens are $0.0012 in a batch, and $0.0024 in single calls
    _run_until_done(task, priced)
    cost, tokens, *rest = spent(dsn, "priced")
    assert (Decimal(0) < cost < Decimal("0.002"), tokens > 0, rest) == (True, True, [0, 0, 0])
    assert len(PROMPTS) == 30
