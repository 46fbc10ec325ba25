"""A nightly batch over a real ledger and a model server: what is asked is counted at the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet

from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptSuperseded
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.integration.llm.conftest import Connect

#: Items of a night, and every so many of them is another one in the next night: three of a hundred.
ITEMS, CHANGES = 100, 33

MONTH = timedelta(days=30)


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def night(
    dsn: str, caller: PydanticAICaller, connect: Connect, stand_in: ModelService, request: pytest.FixtureRequest
) -> Iterator[Callable[..., DurableTask]]:
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    ledger = PostgresLedger.connect(dsn)

    def make(run_id: str, **options: Any) -> DurableTask:
        return DurableTask(
            ledger=ledger, clock=SystemClock(), models=caller, dag_id=request.node.name, run_id=run_id, **options
        )

    yield make
    ledger.close()


def prompts(night: int) -> list[str]:
    """Give the items of a night, some of them changed since the one before, and all of them shifted by one."""
    items = [f"Item {n} of the catalogue. It costs {n} euros." for n in range(ITEMS)]
    return [f"New. {item}" if night > 1 and n % CHANGES == 0 else item for n, item in enumerate(items)][
        :: 1 if night == 1 else -1
    ]


def batch(night: int, **options: Any) -> Callable[[Any], Any]:
    return lambda f: f.llm_map("describe", prompts(night), reuse=MONTH, max_workers=16, **options)


def asked(stand_in: ModelService, before: int) -> int:
    return len(stand_in.requests()) - before


def test_a_second_night_asks_for_what_changed_and_shows_whence_the_rest_comes(
    night: Callable[..., DurableTask], stand_in: ModelService, dsn: str
) -> None:
    settings = FlowSettings(inline_limit=300, payload_keys=(Fernet.generate_key(),))
    before = len(stand_in.requests())
    first = night("night 1", settings=settings)
    answers = dict(zip(prompts(1), first.run(batch(1)), strict=True))
    assert asked(stand_in, before) == ITEMS

    changed = sum(prompt.startswith("New.") for prompt in prompts(2))
    before = len(stand_in.requests())
    second = night("night 2", settings=replace(settings), store=first.store)
    given = second.run(batch(2))
    assert asked(stand_in, before) == changed
    assert 0.02 <= changed / ITEMS <= 0.04
    for prompt, answer in zip(prompts(2), given, strict=True):
        assert answer == answers.get(prompt, answer)

    [line] = [line for line in second.host.lines if line.startswith("aiflow: done: ")]
    assert f"0 replayed, {ITEMS - changed} reused from earlier runs, {changed} ran" in line
    assert f"of {ITEMS - changed} model calls" in line
    assert any("(run night 1, 20" in line for line in second.host.lines)
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select e.data from aiflow.event e join aiflow.execution x using (execution_id)"
            " where x.dag_id = %s and x.run_id = 'night 2' and e.kind = 'items'",
            (second.execution.dag_id,),
        ).fetchall()
    cipher = PayloadCipher(settings.payload_keys)
    events = [json.loads(cipher.open(row[0], "an event")) for row in rows]
    assert sum(event["count"] for event in events) == ITEMS
    assert sum(event.get("reused_from", {}).get("night 1", 0) for event in events) == ITEMS - changed
    assert all(Decimal(event.get("cost", "0")) >= 0 for event in events)

    before = len(stand_in.requests())
    assert second.run(batch(2)) == given, "a retry replays its own copies"
    assert asked(stand_in, before) == 0


def test_a_night_that_breaks_off_has_paid_for_what_it_asked(
    night: Callable[..., DurableTask], stand_in: ModelService
) -> None:
    """An attempt that ends in the middle leaves no answer uncommitted that came more than a flush ago."""
    task = night("broken")
    before = len(stand_in.requests())

    def cut() -> Iterator[str]:
        for number, prompt in enumerate(prompts(1)):
            if number == ITEMS // 2:
                raise ConnectionError("the list ends here")
            yield prompt

    with pytest.raises(ConnectionError):
        task.run(lambda f: f.llm_map("describe", cut(), max_workers=16))
    assert task.run(batch(1)) == task.run(batch(1))
    assert asked(stand_in, before) == ITEMS


def test_a_superseded_attempt_leaves_its_answers_to_the_next(
    night: Callable[..., DurableTask], stand_in: ModelService
) -> None:
    task = night("superseded")
    before = len(stand_in.requests())

    def items(flow: Any) -> Iterator[str]:
        for number, prompt in enumerate(prompts(1)):
            if number == 50:
                flow._session.gate.supersede("a later attempt is at work")
            yield prompt

    attempt = task.attempt()
    task.retried()
    with pytest.raises(AttemptSuperseded), open_flow(attempt, task.services) as flow:
        flow.llm_map("describe", items(flow), max_workers=4)
    made = asked(stand_in, before)
    assert 0 < made <= 50
    task.run(batch(1))
    assert asked(stand_in, before) == ITEMS
