"""What pages read of executions: each figure against what really ran."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import ScriptedModels
from tests.integration.reading.house import URL, House, add

SPLIT = {"dag_id": "invoices", "run_id": "monday", "task_id": "split"}
REVIEW = SPLIT | {"task_id": "review"}
PAGES = SPLIT | {"task_id": "pages"}


def rows(timeline: dict[str, Any]) -> list[dict[str, Any]]:
    table = timeline["steps"]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def test_a_run_lists_its_executions_with_what_was_saved(house: House) -> None:
    run = house.get("/executions", dag_id="invoices", run_id="monday").json()
    assert [one["task_id"] for one in run["items"]] == ["split", "review", "pages"]
    split = run["items"][0]
    assert (split["state"], split["attempts"], split["recoveries"], split["calls"]) == ("succeeded", 2, 1, 2)
    assert split["saved"]["replay"] == {"calls": 2, "cost": "0.008"}
    assert split["effects"] == {"done": 1, "in_doubt": 0, "other": 0}
    assert run["totals"]["executions"] == 3
    assert run["totals"]["calls"] == 2 + 2 + 25


def test_a_run_that_nobody_knows_is_an_empty_one(house: House) -> None:
    run = house.get("/executions", dag_id="invoices", run_id="never").json()
    assert (run["items"], run["totals"]["steps"]) == ([], 0)


def test_a_timeline_tells_of_a_killed_attempt_and_what_the_next_one_found(house: House) -> None:
    timeline = house.get("/timeline", **SPLIT).json()
    assert [(one["attempt"], one["outcome"], one["generation"]) for one in timeline["attempts"]] == [
        (1, "killed", 1),
        (2, "succeeded", 1),
    ]
    found = {row["name"]: row["state"] for row in rows(timeline)}
    assert found == {"count": "replayed", "sum up": "replayed", "book": "ran", "file": "ran"}
    assert all(row["started_at_ms"] <= row["ended_at_ms"] for row in rows(timeline))
    assert [(one["name"], one["key"], one["state"]) for one in timeline["effects"]] == [
        ("mail", "invoice/1", "succeeded")
    ]
    assert timeline["head"]["paid"]["calls"] == 2
    assert timeline["head"]["saved_replay"]["calls"] == 2
    assert not timeline["truncated"]


def test_a_fresh_start_is_a_generation_of_its_own(house: House) -> None:
    now, before = house.get("/timeline", **REVIEW).json(), house.get("/timeline", **REVIEW, generation=1).json()
    assert [(one["generation"], one["why"]) for one in now["generations"]] == [(1, "first"), (2, "cleared")]
    assert [one["generation"] for one in now["attempts"]] == [1, 2]
    assert {row["attempt"] for row in rows(now)} == {2}
    assert {row["attempt"] for row in rows(before)} == {1}
    assert house.get("/timeline", **REVIEW, generation=3).status_code == 404


def test_maps_are_folded_and_unfold_page_by_page(house: House) -> None:
    timeline = house.get("/timeline", **PAGES).json()
    assert rows(timeline) == []
    assert {one["name"]: (one["done"], one["failed"]) for one in timeline["maps"]} == {
        "read": (30, 0),
        "check": (9, 1),
        "classify": (25, 0),
    }
    first = house.get("/units", **PAGES, map="check", limit=4).json()
    assert (first["items"][0]["state"], first["items"][0]["reason"]) == ("failed", "ValueError: page 3 is torn")
    keys = [one["key"] for one in first["items"][1:]]
    after = first["next"]
    while after:
        page = house.get("/units", **PAGES, map="check", limit=4, after=after).json()
        assert all(one["state"] == "ran" for one in page["items"]), "the failed one comes once"
        keys += [one["key"] for one in page["items"]]
        after = page["next"]
    assert len(keys) == len(set(keys)) == 9


def test_a_step_shows_what_it_gave_and_that_nobody_changed_it(house: House) -> None:
    by_name = {row["name"]: row["key"] for row in rows(house.get("/timeline", **SPLIT).json())}
    step = house.get("/step", **SPLIT, key=by_name["sum up"]).json()
    assert step["result"]["value"].startswith("answer to: the ")
    assert (step["sealed"], step["cost"], step["attempt_try"], step["state"]) == (True, "0.004", 1, "replayed")
    assert house.get("/step", **SPLIT, key="0" * 64).status_code == 404


@pytest.mark.parametrize("run_id", ["m__2026-01-01T00:00:00+00:00 \u00e9#?%2F", "..", "a/b:c+d %00 \U0001f600"])
def test_a_run_with_an_odd_id_is_read_as_itself(fresh: House, run_id: str) -> None:
    """C47, C50: ids that addresses must quote, and an answer that PostgreSQL's text can't hold."""
    answer, asked = "ok\u0000tail", ScriptedModels(lambda _request: "ok\u0000tail")
    for each in (run_id, run_id + "_"):
        task = fresh.task("split", run_id=each)
        task.models = asked
        assert task.run(lambda flow: flow.llm("ask", "why?")) == answer
    of_it = SPLIT | {"run_id": run_id}
    assert [one["task_id"] for one in fresh.get("/executions", dag_id="invoices", run_id=run_id).json()["items"]] == [
        "split"
    ]
    [row] = rows(fresh.get("/timeline", **of_it).json())
    assert fresh.get("/step", **of_it, key=row["key"]).json()["result"]["value"] == answer
    assert len(asked.requests) == 2


def test_a_step_whose_row_was_changed_by_hand_is_told(fresh: House) -> None:
    task = fresh.task("split")
    task.run(lambda flow: flow.step("count", sum, [1, 2]))
    [row] = rows(fresh.get("/timeline", **SPLIT).json())
    fresh.sql("update aiflow.step set result = '4'")
    assert fresh.get("/step", **SPLIT, key=row["key"]).json()["sealed"] is False


def test_what_changed_since_the_generation_before_is_named(house: House) -> None:
    found = [
        house.get("/step", **REVIEW, key=row["key"]).json()["changed"]
        for row in rows(house.get("/timeline", **REVIEW).json())
    ]
    assert found == [[], ["prompt"], []]


def test_a_step_shows_what_it_was_given(house: House) -> None:
    by_name = {row["name"]: row["key"] for row in rows(house.get("/timeline", **SPLIT).json())}
    step = house.get("/step", **SPLIT, key=by_name["count"]).json()
    assert [(each["name"], each["value"], each["cut"]) for each in step["arguments"]] == [
        ("left", 1, False),
        ("right", 2, False),
    ]
    found = house.get("/step", **SPLIT, key=by_name["sum up"]).json()["arguments"]
    given = {each["name"]: each["value"] for each in found}
    assert given["prompt"] in ("the first page", "the second page")
    assert (given["connection"], given["settings"]) == ("model", {})


def given_two(ref: ArtifactRef, token: str, number: int) -> int:
    return ref.size + number


def test_each_kind_of_step_names_what_changed_and_a_files_argument_is_a_download(fresh: House) -> None:
    """Also of a map, of which the first item alone keeps the names; a row of the release before has none."""
    task, numbers = fresh.task("review"), [1, 2]

    def body(flow: Flow) -> None:
        ref = flow.save(b"a scan", name="scan.pdf")
        flow.step("scan", given_two, ref, "geheim", numbers[0])
        flow.map("each", add, [numbers[0], 5, 6 + numbers[0]], numbers[1])

    task.run(body)
    task.cleared()
    numbers[:] = [3, 2]
    task.run(body)
    found = {row["name"]: row["key"] for row in rows(fresh.get("/timeline", **REVIEW).json())}
    step = fresh.get("/step", **REVIEW, key=found["scan"]).json()
    assert step["changed"] == ["number"]
    by_name = {each["name"]: each for each in step["arguments"]}
    assert by_name["token"]["value"] == "***"
    assert "geheim" not in str(fresh.sql("select convert_from(arguments, 'LATIN1') from aiflow.step"))
    file = fresh.client.get(URL + by_name["ref"]["artifact"]["href"])
    assert (file.status_code, file.content) == (200, b"a scan")
    assert file.headers["Content-Disposition"].startswith("attachment")
    other = fresh.client.get(
        URL + by_name["ref"]["artifact"]["href"].replace(by_name["ref"]["value"]["$artifact"], "0" * 64)
    )
    assert other.status_code == 404
    diff = fresh.get("/diff", **REVIEW, generation_a=1, generation_b=2).json()
    changed = [(one["name"], one["changed"]) for one in diff["items"] if one["verdict"] == "changed"]
    assert changed == [("scan", ["number"]), ("each", ["left"]), ("each", ["left"])]
    items = fresh.get("/units", **REVIEW, map="each").json()["items"]
    assert ["left"] in [fresh.get("/step", **REVIEW, key=one["key"]).json()["changed"] for one in items]
    fresh.sql("update aiflow.step set arguments = null")
    old = fresh.get("/step", **REVIEW, key=found["scan"]).json()
    assert (old["arguments"], old["changed"]) == (None, ["argument 4"])


@pytest.mark.parametrize("name", ["artifact", "$artifact"])
def test_a_text_that_is_a_files_address_gives_nobody_that_file(fresh: House, name: str) -> None:
    """Also where it was given in the shape in which a file's reference is shown: an input is anybody's."""
    files: list[ArtifactRef] = []
    fresh.task("review").run(lambda flow: files.append(flow.save(b"another one's scan", name="scan.pdf")))
    address = files[0].sha256
    fresh.task("split").run(lambda flow: flow.step("classify", len, {name: address}))
    found = {row["name"]: row["key"] for row in rows(fresh.get("/timeline", **SPLIT).json())}
    [page] = fresh.get("/step", **SPLIT, key=found["classify"]).json()["arguments"]
    assert page["artifact"] is None
    assert fresh.get(f"/artifacts/{address}", **SPLIT, key=found["classify"]).status_code == 404


def test_large_results_and_files_are_downloads(house: House) -> None:
    by_name = {row["name"]: row["key"] for row in rows(house.get("/timeline", **SPLIT).json())}
    large = house.get("/step", **SPLIT, key=by_name["book"]).json()["result"]["artifact"]
    body = house.client.get(URL + large["href"])
    assert (body.status_code, json.loads(body.content)) == (200, "7 " * 20_000)
    assert body.headers["Content-Disposition"].startswith("attachment")
    file = house.get("/step", **SPLIT, key=by_name["file"]).json()["result"]["artifact"]
    assert file["name"] == "table.csv"
    body = house.client.get(URL + file["href"])
    assert (body.content, body.headers["Content-Type"]) == (b"a table", "application/octet-stream")
    assert "table.csv" in body.headers["Content-Disposition"]
    assert "sandbox" in body.headers["Content-Security-Policy"]
    known = {"If-None-Match": body.headers["ETag"]}
    assert house.client.get(URL + file["href"], headers=known).status_code == 304


@pytest.mark.parametrize("content", [b"a table", b"nobody recorded this"])
def test_an_artifact_that_the_execution_did_not_record_is_none(house: House, content: bytes) -> None:
    """The first one is in the store, and another step's; without the step's key nothing says that it is."""
    sha256 = hashlib.sha256(content).hexdigest()
    assert house.get(f"/artifacts/{sha256}", **SPLIT).status_code == 404
    assert house.get(f"/artifacts/{sha256}", **REVIEW).status_code == 404
    other = rows(house.get("/timeline", **REVIEW).json())[0]["key"]
    assert house.get(f"/artifacts/{sha256}", **REVIEW, key=other).status_code == 404


def test_generations_are_compared_step_by_step(house: House) -> None:
    diff = house.get("/diff", **REVIEW, generation_a=1, generation_b=2).json()
    assert diff["counts"] == {"same": 2, "changed": 1, "new": 0, "gone": 0}
    [changed] = [one for one in diff["items"] if one["verdict"] == "changed"]
    assert changed["changed"] == ["prompt"]
    assert changed["before"]["result"] == "answer to: is it paid?"
    assert "+answer to: is it settled?" in changed["lines"]


def test_runs_are_compared(house: House) -> None:
    diff = house.get("/diff", dag_id="invoices", run_a="sunday", run_b="monday").json()
    assert (diff["counts"]["gone"], diff["counts"]["new"], diff["counts"]["same"]) == (60, 72, 0)
    one = house.get("/diff", dag_id="invoices", run_a="monday", run_b="monday", task_id="split").json()
    assert one["counts"] == {"same": 5, "changed": 0, "new": 0, "gone": 0}
    assert house.get("/diff", dag_id="invoices", run_a="never", run_b="no").status_code == 404
    assert house.get("/diff", dag_id="invoices", run_a="monday").status_code == 422


def test_reused_answers_count_as_saved_with_what_they_had_cost(fresh: House) -> None:
    def body(flow: Any) -> str:
        return str(flow.llm("ask", "the same question", llm_conn_id="model", reuse=3600.0))

    fresh.task("split", run_id="first").run(body)
    second = fresh.task("split", run_id="second")
    second.run(body)
    assert second.models.requests == []  # type: ignore[attr-defined]
    [one] = fresh.get("/executions", dag_id="invoices", run_id="second").json()["items"]
    assert one["saved"]["reuse"] == {"calls": 1, "cost": "0.004"}
    assert one["calls"] == 0
    timeline = fresh.get("/timeline", **SPLIT | {"run_id": "second"}).json()
    [row] = rows(timeline)
    assert row["state"] == "reused"
    step = fresh.get("/step", **SPLIT | {"run_id": "second"}, key=row["key"]).json()
    assert (step["provenance"]["run_id"], step["provenance"]["cost"]) == ("first", "0.004")


def test_secrets_in_a_result_are_masked(fresh: House) -> None:
    def body(flow: Any) -> Any:
        return flow.step("log in", lambda: {"user": "ann", "password": "hunter2", "long": "x" * 50_000})

    fresh.task("split").run(body)
    [row] = rows(fresh.get("/timeline", **SPLIT).json())
    step = fresh.get("/step", **SPLIT, key=row["key"])
    assert "hunter2" not in step.text
    artifact = step.json()["result"]["artifact"]
    assert json.loads(fresh.client.get(URL + artifact["href"]).content)["password"] == "***"
    fresh.task("review").run(lambda flow: flow.step("log in", lambda: {"user": "ann", "password": "hunter2"}))
    [row] = rows(fresh.get("/timeline", **REVIEW).json())
    assert fresh.get("/step", **REVIEW, key=row["key"]).json()["result"]["value"] == {"user": "ann", "password": "***"}
