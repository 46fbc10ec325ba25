"""Limits and budgets over several processes, on a real PostgreSQL, counted at the model's server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.budget import Account
from airflow_aiflow.durable.limit import Limit
from airflow_aiflow.exceptions import BudgetExceededError
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.request_log import read_events
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.integration.llm.conftest import Connect
from tests.integration.llm.paying_workers import a_task, body

TEXT = "The tenant pays ninety euros on the first day of each month. The landlord keeps the roof in good repair."

#: Seconds that no run of workers needs, on the slowest machine.
ENOUGH = 180

Workers = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    migrate.upgrade(database)
    return database


@pytest.fixture(scope="module")
def workers(dsn: str, tmp_path_factory: pytest.TempPathFactory, stand_in_service: ModelService) -> Workers:
    """Run worker processes to their ends; give what each gave."""
    extra = {"model": "openai-chat:stand-in"}
    connection = {"conn_type": "pydanticai", "host": stand_in_service.base_url, "extra": extra}

    def run(*jobs: dict[str, Any], **given: Any) -> list[Any]:
        file = tmp_path_factory.mktemp("workers") / "workers.json"
        file.write_text(json.dumps({"dsn": dsn, "workers": jobs, **given}))
        ended = subprocess.run(
            [sys.executable, "-m", "tests.integration.llm.paying_workers", str(file)],
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

    return run


def prompts(worker: int, count: int) -> list[str]:
    return [f"{TEXT} Worker {worker}, page {number}." for number in range(count)]


def most_within(moments: list[datetime], window: float) -> int:
    """Give the most arrivals that any window of so many seconds holds."""
    span = timedelta(seconds=window)
    return max(sum(start <= one < start + span for one in moments) for start in moments)


def most_at_once(stand_in: ModelService, after: int) -> int:
    at_work = most = 0
    for event in read_events(stand_in.count_file)[after:]:
        at_work += 1 if event["event"] == "request" else -1
        most = max(most, at_work)
    return most


def test_processes_share_one_limit_and_one_that_dies_gives_its_share_back(
    dsn: str, stand_in: ModelService, workers: Workers
) -> None:
    window, rate, at_once = 2.0, 18, 5
    ledger = PostgresLedger.connect(dsn)
    ledger.limits.set_limit(Limit("openai", rpm=rate, concurrency=at_once))
    with psycopg.connect(dsn) as behind:
        # So that a test of several windows takes seconds; a minute is one of 60.
        behind.execute("update aiflow.rate_limit set window_s = %s", [window])
    stand_in.set_faults(Fault("delay", seconds=0.05))
    before, events_before = len(stand_in.requests()), len(read_events(stand_in.count_file))
    jobs = [
        {"run": f"limited-{number}", "limit": "openai", "threads": 4, "prompts": prompts(number, 14)}
        for number in range(3)
    ]
    ended = workers({**jobs[0], "die_after": 3}, *jobs[1:], share_seconds=3.0)

    assert str(ended[0]).startswith("!no end"), ended
    assert [one["answers"] for one in ended[1:]] == [14, 14]
    moments = [datetime.fromisoformat(request.at) for request in stand_in.requests()[before:]]
    assert len(moments) >= 28 + 3
    # A call may be under way to the server for a moment: no more than those that are at work at once.
    assert most_within(moments, window) <= rate + at_once
    assert most_at_once(stand_in, events_before) <= at_once
    for one in ended[1:]:
        assert one["exchanges"] <= one["seconds"] + 3, "one query a second, not one a call"
    [view] = ledger.limits.limits()
    assert (view.slots, view.waiting) == (0, 0)
    ledger.close()


#: Of three workers that share it.
BUDGET = 1200

#: A task of one call after the other, and after which of its answers its worker dies.
KILLED: dict[str, Any] = {"run": "killed", "prompts": prompts(0, 12), "budget": "1 M tokens"}
DIES_AFTER = 3


@pytest.fixture(scope="module")
def paid(workers: Workers, stand_in_service: ModelService) -> tuple[list[Any], int]:
    """Run three workers that share a budget, and one that dies; give their ends, and how many requests they made."""
    before = len(stand_in_service.requests())
    jobs = [
        {"run": "paid", "map_index": number, "threads": 4, "prompts": prompts(number, 30), "budget": f"{BUDGET} tokens"}
        for number in range(3)
    ]
    ended = workers(*jobs, {**KILLED, "die_after": DIES_AFTER})
    return ended, len(stand_in_service.requests()) - before


def test_processes_share_one_budget(dsn: str, paid: tuple[list[Any], int]) -> None:
    ended, requests = paid
    assert any("exceeded" in one for one in ended[:3])
    with psycopg.connect(dsn) as behind:
        [(spent, calls)] = behind.execute(
            "select sum(tokens_in + tokens_out), count(*) from aiflow.step join aiflow.execution using (execution_id)"
            " where run_id = 'paid'"
        ).fetchall()
        [(tokens, held)] = behind.execute(
            "select b.tokens, (select count(*) from aiflow.budget_hold h where h.budget_id = b.budget_id)"
            " from aiflow.budget b where run_id = 'paid'"
        ).fetchall()
    assert calls == requests - DIES_AFTER
    assert (tokens, held) == (spent, 0)
    assert BUDGET * 0.8 < spent <= BUDGET


def test_a_budget_holds_over_a_kill_and_goes_on_once_raised(
    dsn: str, paid: tuple[list[Any], int], stand_in: ModelService, caller: PydanticAICaller, connect: Connect
) -> None:
    """The call whose answer died with the worker may have been billed, so it counts as it was estimated."""
    assert str(paid[0][3]).startswith("!no end")
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    before = len(stand_in.requests()) - DIES_AFTER
    task = a_task(dsn, KILLED, caller)
    task.retried()
    task.budget = "420 tokens"
    with pytest.raises(BudgetExceededError, match="set aside for calls whose outcome nobody knows"):
        task.run(body(KILLED))
    stopped = len(stand_in.requests()) - before
    assert 3 < stopped < 12
    with psycopg.connect(dsn) as behind:
        identity = Account("batch", "killed", "task").identity
        [(tokens, unknown)] = behind.execute(
            "select tokens, unknown_tokens from aiflow.budget where identity = %s", [identity]
        ).fetchall()
        [(recorded,)] = behind.execute(
            "select sum(tokens_in + tokens_out) from aiflow.step join aiflow.execution using (execution_id)"
            " where run_id = 'killed'"
        ).fetchall()
    assert unknown > 0
    assert tokens == recorded + unknown <= 420
    task.budget = "5000 tokens"
    task.cleared()
    assert len(task.run(body(KILLED))) == 12
    assert len(stand_in.requests()) - before == 12 + 1, "only the call that died with its worker was paid twice"
    task.ledger.close()
