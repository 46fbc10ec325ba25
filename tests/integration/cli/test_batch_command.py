"""`aiflow batch failed | retry-failed` over a real ledger; Airflow's API is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.attempt import digest_upstream
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.airflow_api import PASSWORD, AirflowStandIn, serving

DAG, RUN = "nightly", "scheduled__2026-11-29"
RAN: list[int] = []
BAD: set[int] = set()


def work(item: int) -> int:
    RAN.append(item)
    if item in BAD:
        raise ValueError(f"no {item} today\nand more")
    return item * 2


def body(flow: Flow) -> Any:
    return flow.map("work", work, range(10), on_item_error="skip", max_item_attempts=1, item_key=lambda n: f"key {n}")


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def make(dsn: str) -> Iterator[Callable[..., DurableTask]]:
    ledger = PostgresLedger.connect(dsn)

    def one(task_id: str, map_index: int = -1) -> DurableTask:
        task = DurableTask(
            ledger=ledger, clock=SystemClock(), dag_id=DAG, run_id=RUN, task_id=task_id, map_index=map_index
        )
        task.upstream_digest = digest_upstream([("above", -1, 1.0)])
        return task

    yield one
    ledger.close()


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch, dsn: str) -> Iterator[AirflowStandIn]:
    instances = [("score", -1, "success"), ("book", 0, "success"), ("book", 1, "success"), ("report", -1, "success")]
    stand_in = AirflowStandIn(DAG, RUN, instances, {"score": ["report"], "book": ["report"], "report": []})
    with serving(stand_in) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        api = {"conn_type": "http", "host": host, "port": int(port), "login": "admin", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_LEDGER", dsn.replace("postgresql://", "postgres://"))
        monkeypatch.setenv("AIRFLOW_CONN_AIFLOW_API", json.dumps(api))
        yield stand_in


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main(["batch", *words, f"{DAG}/{RUN}", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("airflow")
def test_failed_items_are_listed_and_run_again_alone(
    make: Callable[..., DurableTask], airflow: AirflowStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    BAD.update({3, 7})
    score, book = make("score"), make("book", 1)
    assert score.run(body).count(None) == 2
    BAD.discard(7)
    assert book.run(body).count(None) == 1

    code, found = said(capsys, "failed")
    assert code == 1
    listed = [(each["task_id"], each["map_index"], each["item"], each["key"]) for each in found["failed"]]
    assert listed == [("book", 1, 3, "key 3"), ("score", -1, 3, "key 3"), ("score", -1, 7, "key 7")]
    assert found["failed"][0]["error"] == "ValueError: no 3 today\nand more"
    assert main(["batch", "failed", f"{DAG}/{RUN}", "--task", "score"]) == 1
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["TASK", "MAP", "ITEM", "KEY", "STATE", "TRIES", "AT", "ERROR"]
    assert "ValueError: no 7 today and more" in text
    assert "book" not in text

    code, cleared = said(capsys, "retry-failed")
    assert code == 0
    assert sorted(map(tuple, cleared["cleared"])) == [("book", 1), ("score", -1)]
    BAD.clear()
    RAN.clear()
    for task in (score, book):
        task.cleared()
        assert task.run(body) == [n * 2 for n in range(10)]
    assert sorted(RAN) == [3, 3, 7]
    assert said(capsys, "failed") == (0, {"failed": []})
    assert said(capsys, "retry-failed")[0] == 1, "there is nothing to run again"


@pytest.mark.usefixtures("airflow")
@pytest.mark.parametrize("verb", ["failed", "retry-failed"])
def test_a_run_of_another_ledger_is_not_taken_for_one_without_failures(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert main(["batch", verb, "nightly/scheduled__2026-11-30"]) == 1
    told = capsys.readouterr()
    assert "the ledger knows nothing of run scheduled__2026-11-30 of nightly" in told.err
    assert "no item of a map has failed" not in told.out
