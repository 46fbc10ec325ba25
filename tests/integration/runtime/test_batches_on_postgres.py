"""Batches that mapped tasks share, on a real ledger: cleared with more items and another number of parts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.durable.item_shard import ItemShard
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.batches import Batch, key_reader, run_batch
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.prompt_template import PromptTemplate
from airflow_aiflow.storage.local_folder import LocalFolder
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask, ScriptedModels

RAN, RAN_AGAIN = digest_upstream([("list", -1, 1.0)]), digest_upstream([("list", -1, 2.0)])


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    opened = PostgresLedger.connect(dsn)
    yield opened
    opened.close()


@pytest.fixture
def part(ledger: PostgresLedger, request: pytest.FixtureRequest) -> Callable[..., DurableTask]:
    models = ScriptedModels(lambda asked: f"about {asked.prompt}")

    def make(index: int) -> DurableTask:
        task = DurableTask(
            ledger=ledger, clock=SystemClock(), run_id=request.node.name, map_index=index, models=models, retries=2
        )
        task.upstream_digest = RAN
        return task

    return make


def batch(items: list[int], index: int, of: int, folder: Path) -> Callable[[Flow], dict[str, Any]]:
    made = Batch(
        name="batch",
        read=lambda: ({"id": item} for item in items),
        template=PromptTemplate("item {{ item.id }}"),
        params={},
        key_of=key_reader("id"),
        options={},
        rules=MapRules(),
        folder=LocalFolder(folder),
        form="jsonl",
        shard=ItemShard(index, of),
    )
    return lambda flow: run_batch(flow._session, flow._models, made)


def asked(task: DurableTask) -> Counter[str]:
    assert isinstance(task.models, ScriptedModels)
    return Counter(request.prompt for request in task.models.requests)


def keys(folder: Path, name: str) -> list[str]:
    shards = json.loads((folder / name).read_text())["shards"]
    rows = [json.loads(line) for shard in shards for line in (folder / shard["name"]).read_bytes().splitlines()]
    assert all(row["result"] == f"about item {row['key']}" for row in rows)
    return [row["key"] for row in rows]


def test_a_clear_with_more_items_and_more_parts_asks_about_the_new_items_alone(
    part: Callable[..., DurableTask], tmp_path: Path
) -> None:
    items = list(range(200))
    tasks = [part(index) for index in range(2)]
    for index, task in enumerate(tasks):
        task.run(batch(items, index, 2, tmp_path))
    assert asked(tasks[0]).total() == 200

    grown = [1_000, *reversed(items), 1_001]
    tasks.append(part(2))
    for index, task in enumerate(tasks):
        task.cleared()
        task.upstream_digest = RAN_AGAIN
        task.run(batch(grown, index, 3, tmp_path))
    made = asked(tasks[0])
    assert made.total() == 202
    assert max(made.values()) == 1, "no part asked about what another part had asked about"
    found = [key for index in range(3) for key in keys(tmp_path, f"manifest-{index}-of-3.json")]
    assert sorted(map(int, found)) == sorted(grown)


def test_a_retry_with_other_items_takes_nothing_of_its_live_siblings(
    part: Callable[..., DurableTask], tmp_path: Path
) -> None:
    tasks = [part(index) for index in range(2)]
    for index, task in enumerate(tasks):
        task.run(batch(list(range(40)), index, 2, tmp_path))
    tasks[0].run(batch(list(range(40)), 1, 2, tmp_path))  # an automatic retry of a part that is now another one
    made = asked(tasks[0])
    mine = sum(ItemShard(1, 2).has(str(n)) for n in range(40))
    assert made.total() == 40 + mine, "who shares nothing pays, and hands no item another's result"
