"""Pages stay fast and answers compact, however much is recorded: measured on rows that are written at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from airflow_aiflow.api.reading import LatestRun
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.statements import statement
from tests.integration.reading.house import House

WHERE = {"dag_id": "invoices", "run_id": "large", "task_id": "long"}

#: Seconds, on a machine that is busy with other things; alone it takes a fifth of that.
PATIENCE = 2.5

#: Bytes of a step in an answer: its key alone has 66.
MOST_BYTES = 190

_STEPS = """
insert into aiflow.step (
    execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result, seal, ended_at,
    duration_ms, model, tokens_in, tokens_out, cost, recorded_at
)
select
    x.execution_id, 1, sha256((x.execution_id || '/' || n)::bytea), %(kind)s, %(name)s || n %% %(names)s, '',
    sha256(n::text::bytea), 0, 1, '1', '\\x00', clock_timestamp(), 1.5, null,
    case when n %% 2 = 0 then 10 end, case when n %% 2 = 0 then 5 end, case when n %% 2 = 0 then 0.001 end,
    clock_timestamp()
from aiflow.execution x, generate_series(1, %(number)s) n
where x.run_id = %(run_id)s
"""


def fill(house: House, run_id: str, number: int, *, kind: str = "step", names: int = 10) -> None:
    """Record steps of a run's only execution, as if a task had."""
    house.task("long", run_id=run_id).run(lambda flow: None)
    house.sql(_STEPS, run_id=run_id, number=number, kind=kind, name="step ", names=names)


@pytest.fixture(scope="module")
def filled(postgres_server: PostgresServer) -> Iterator[House]:
    """Give a ledger with an execution of ten thousand steps, a map of fifty thousand, and others around it."""
    house = House(postgres_server.fresh_database("reading_large"))
    fill(house, "large", 10_000)
    fill(house, "map", 50_000, kind="item", names=1)
    for other in range(20):
        fill(house, f"other{other}", 2_000)
    house.sql("analyze")
    yield house
    house.close()


@pytest.fixture
def large(filled: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """Give the app on it."""
    filled.enter(monkeypatch)
    return filled


def timed(house: House, path: str, **params: Any) -> tuple[Any, float]:
    house.get(path, **params)  # the first one opens connections
    began = time.perf_counter()
    answer = house.get(path, **params)
    took = time.perf_counter() - began
    assert answer.status_code == 200, answer.text
    return answer, took


def test_ten_thousand_steps_are_one_quick_and_compact_answer(large: House) -> None:
    answer, took = timed(large, "/timeline", **WHERE)
    assert len(answer.json()["steps"]["rows"]) == 10_000
    assert took < PATIENCE
    assert len(answer.content) < 10_000 * MOST_BYTES


def test_a_map_is_one_row_however_many_items_it_has(large: House) -> None:
    answer, took = timed(large, "/timeline", **WHERE | {"run_id": "map"})
    timeline = answer.json()
    assert timeline["steps"]["rows"] == []
    assert [(one["name"], one["done"]) for one in timeline["maps"]] == [("step 0", 50_000)]
    assert (took < PATIENCE, len(answer.content) < 5_000) == (True, True)
    units, took = timed(large, "/units", **WHERE | {"run_id": "map"}, map="step 0", limit=200)
    assert len(units.json()["items"]) == 200
    assert took < PATIENCE


def test_other_answers_stay_quick_beside_it(large: House) -> None:
    at = datetime.now(UTC)
    large.airflow.runs = [LatestRun(f"other{n}", "success", at, at) for n in range(20)]
    for path, params in (
        ("/overview", {}),
        ("/executions", {"dag_id": "invoices", "run_id": "large"}),
        ("/dags/invoices/history", {}),
        ("/inbox", {}),
        ("/recoveries", {}),
        ("/batches", {}),
        ("/search", {"q": "large"}),
        ("/diff", {"dag_id": "invoices", "run_a": "large", "run_b": "other0", "task_id": "long"}),
    ):
        _, took = timed(large, path, **params)
        assert took < PATIENCE, (path, took)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("days", {"days": 7}),
        ("detections", {"days": 7, "limit": 2000}),
        ("recovery_feed", {"dag_ids": ["invoices"], "before": 2**62, "limit": 50}),
        ("said", {"dag_ids": ["invoices"], "limit": 50, "fail": "Fail the task"}),
        ("search_runs", {"dag_ids": ["invoices"], "run_id": "large", "limit": 50}),
        ("search_artifact", {"dag_ids": ["invoices"], "first": b"\x00" * 32, "last": b"\x01" * 32, "limit": 50}),
        ("batches", {"dag_ids": ["invoices"], "hours": 24, "most": 500, "events": 200}),
        ("artifact_recorded", {"execution_id": 1, "sha256": b"\x00" * 32}),
    ],
)
def test_what_concerns_many_executions_never_reads_all_steps(large: House, name: str, params: dict[str, Any]) -> None:
    """A ledger of ten million steps is no slower: no plan reads a table of steps or events from end to end."""
    with psycopg.connect(large.dsn) as connection:
        connection.execute("set enable_seqscan = off")
        [(found,)] = connection.execute("explain (format json) " + statement(name), params).fetchall()
    read_whole = [node["Relation Name"] for node in _nodes(found[0]["Plan"]) if node["Node Type"] == "Seq Scan"]
    assert set(read_whole) & {"step", "event", "intent", "attempt"} == set()


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
