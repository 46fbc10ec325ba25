"""Sums, runs of a DAG, recoveries, batches, limits, search: what concerns many executions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_aiflow.api.reading import LatestRun
from airflow_aiflow.durable.limit import Limit
from airflow_aiflow.storage.statements import statement
from tests.integration.reading.house import House, User


def test_the_overview_adds_up_days_of_the_dags_that_one_may_read(house: House) -> None:
    found = house.get("/overview").json()
    assert (found["runs"], found["executions"], found["paid"]["calls"]) == (3, 7, 31)
    assert found["saved"] == {"calls": 2, "cost": "0.008"}
    assert (found["recoveries"], found["detect_seconds_p50"]) == (1, 4.2)
    assert found["success_rate"] == 1.0
    assert (found["in_doubt"], found["waiting"]) == (2, 3), "what waits in the DAG `secret` is not counted"
    assert found["commit_seconds_p50"] > 0


def test_nobody_elses_sums_are_told(house: House) -> None:
    house.user = User("stranger")
    found = house.get("/overview").json()
    assert (found["runs"], found["paid"]["calls"], found["waiting"], found["detect_seconds_p50"]) == (0, 0, 0, None)


def test_the_sums_of_a_day_do_not_cross_midnight(fresh: House) -> None:
    """The tally takes in what it missed, a piece at a time, none of which reaches from one day into the next."""
    fresh.task("split").run(lambda flow: flow.llm("ask", "why?", llm_conn_id="model"))
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = midnight - timedelta(minutes=3)
    fresh.sql("update aiflow.step set recorded_at = %(at)s", at=yesterday)
    fresh.sql("update aiflow.attempt set started_at = %(at)s, ended_at = %(at)s", at=yesterday)
    fresh.sql("update aiflow.tally_mark set upto = %(at)s", at=yesterday - timedelta(minutes=1))
    [(since, till)] = fresh.sql(statement("tally_window"))
    assert (since, till) == (yesterday - timedelta(minutes=1), midnight)
    fresh.figures.look()
    assert fresh.sql("select day, dag_id, paid_calls, runs from aiflow.dag_day") == [
        (yesterday.date(), "invoices", 1, 1)
    ]


def test_the_last_runs_of_a_dag_with_those_that_stand_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 11, 30, tzinfo=UTC)
    runs = [LatestRun(f"run{n}", "success", at, at + timedelta(seconds=10 + n)) for n in range(8)]
    runs.append(LatestRun("slow", "success", at, at + timedelta(hours=1)))
    monkeypatch.setattr(house.airflow, "runs", [*house.airflow.runs[:1], *runs])
    items = {one["run_id"]: one for one in house.get("/dags/invoices/history").json()["items"]}
    assert (items["monday"]["calls_paid"], items["monday"]["calls_saved"]) == (31, 2)
    assert (items["monday"]["cost"], items["monday"]["saved_cost"]) == ("0.124", "0.008")
    assert items["monday"]["recoveries"] == 1
    assert items["run3"]["calls_paid"] == 0
    assert items["slow"]["outlier"]
    assert not items["run3"]["outlier"]


def test_recoveries_tell_what_was_done_beside_airflow_alone(house: House) -> None:
    [one] = house.get("/recoveries").json()["items"]
    assert (one["kind"], one["deed"], one["evidence"]) == ("dead_worker", "requeue", "its process is gone")
    assert (one["detect_seconds"], one["airflow_alone_seconds"]) == (4.2, 300.0)
    assert one["gone_on_at"] is not None


def test_a_batch_tells_how_far_it_is(fresh: House) -> None:
    def half(number: int) -> int:
        if number == 7:
            raise ValueError("torn")
        return number

    fresh.task("pages").run(lambda flow: flow.map("read", half, range(200), on_item_error="skip"))
    [one] = fresh.get("/batches").json()["items"]
    assert (one["map"], one["total"], one["failed"], one["live"]) == ("read", 200, 1, False)
    assert one["done"] >= 190
    assert one["ended_at"] is not None
    [dead] = fresh.get("/batches/failed", dag_id="invoices", run_id="monday").json()["items"]
    assert (dead["number"], dead["error"], dead["state"]) == (7, "ValueError: torn", "dead")
    marked = fresh.post("/batches:retry_failed", dag_id="invoices", run_id="monday", task_id="pages").json()
    assert marked == {"items": 1, "task_ids": ["pages"]}
    assert fresh.sql("select state::text from aiflow.failed_item") == [("retry",)]


def test_limits_show_what_counts_against_them(fresh: House) -> None:
    fresh.ledger.limits.set_limit(Limit("openai", rpm=500, concurrency=4))
    [one] = fresh.get("/limits").json()["items"]
    assert (one["name"], one["rpm"], one["tpm"], one["concurrency"]) == ("openai", 500, None, 4)
    assert one["used"] == {"requests": 0, "tokens": 0, "running": 0, "waiting": 0, "workers": 0}


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("billing/4711", [("effect", "pay billing/4711")]),
        ("sunday", [("run", "sunday")]),
        ("secret/1", []),
        ("nothing of the kind", []),
        ("%", []),
    ],
)
def test_search(house: House, word: str, found: list[tuple[str, str]]) -> None:
    items = house.get("/search", q=word).json()["items"]
    assert [(one["what"], one["label"]) for one in items] == found


def test_runs_are_found_by_a_label_of_a_task(fresh: House) -> None:
    for number in range(3):
        fresh.task("book", map_index=number, labels={"team": "legal", "a": "b=c"}).run(lambda flow: None)
    fresh.task("mail", run_id="tuesday", labels={"team": "legal"}).run(lambda flow: None)
    fresh.task("plain").run(lambda flow: None)
    found = fresh.get("/search", q="team=legal").json()["items"]
    assert [(one["what"], one["label"], one["execution"]["task_id"]) for one in found] == [
        ("run", "tuesday", "mail"),
        ("run", "monday", "book"),
    ]
    assert len(fresh.get("/search", q="a=b=c").json()["items"]) == 1
    assert fresh.get("/search", q="team=leg").json()["items"] == []
    fresh.user = User("stranger")
    assert fresh.get("/search", q="team=legal").json()["items"] == []


def test_a_task_s_labels_stand_with_it(fresh: House) -> None:
    fresh.task("book", labels={"team": "legal"}).run(lambda flow: None)
    fresh.task("plain").run(lambda flow: None)
    items = fresh.get("/executions", dag_id="invoices", run_id="monday").json()["items"]
    assert {one["task_id"]: one["labels"] for one in items} == {"book": {"team": "legal"}, "plain": {}}
    shown = fresh.get("/timeline", dag_id="invoices", run_id="monday", task_id="book", map_index=-1).json()
    assert shown["execution"]["labels"] == {"team": "legal"}


def test_an_artifact_is_found_by_the_beginning_of_its_hash(house: House) -> None:
    [(sha256,)] = house.sql("select encode(result_sha256, 'hex') from aiflow.step where result_sha256 is not null")
    for length in (6, 7, 40, 64):
        [hit] = house.get("/search", q=sha256[:length]).json()["items"]
        assert (hit["what"], hit["label"], hit["execution"]["task_id"]) == ("artifact", "book", "split")


def test_a_clear_is_told_beforehand_and_wished(house: House) -> None:
    found = house.post("/clear:preview", dag_id="invoices", run_id="monday").json()
    by_task = {line["task_id"]: line for line in found["tasks"]}
    assert by_task["split"]["verdict"] == "succeeded -> new generation"
    assert by_task["split"]["model_calls_again"] == 2
    assert by_task["review"]["verdict"].startswith("succeeded -> resume")
    assert by_task["plain"]["durable"] is False
    resume = house.post("/clear:preview", dag_id="invoices", run_id="monday", on_clear="resume").json()
    assert resume["model_calls_again"] == 0
    assert house.post("/clear:preview", dag_id="invoices", run_id="never").status_code == 404
    place: dict[str, Any] = {"dag_id": "invoices", "run_id": "monday", "task_ids": ["split"]}
    assert house.post("/clear:wish", **place, on_clear="fresh").json() == {"executions": 1}
    assert house.sql("select on_clear::text, cleared from aiflow.wish") == [("fresh", False)]
    assert house.post("/clear:wish_settled", **place, cleared=False).json() == {"executions": 1}
    assert house.sql("select on_clear::text from aiflow.wish") == []


def test_another_dags_effects_of_a_key_do_not_stand_in_the_way(fresh: House) -> None:
    for number in range(51):
        fresh.doubt("invoice/7", dag_id="secret", run_id=f"r{number}", name=f"pay{number}")
    own = fresh.doubt("invoice/7")
    assert own > 51
    [hit] = fresh.get("/search", q="invoice/7").json()["items"]
    assert (hit["what"], hit["label"], hit["execution"]["dag_id"]) == ("effect", "pay invoice/7", "billing")
