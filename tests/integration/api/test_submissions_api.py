"""The routes of submissions: one task for one key, and nothing for who may not see it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.routing import Mount

from airflow_aiflow.api import submission_routes
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.integration.api.conftest import URL, User, World


def test_a_submit_is_answered_with_its_place_and_becomes_a_run(world: World) -> None:
    answer = world.submit()
    assert answer.status_code == 202, answer.text
    view = answer.json()
    assert (view["state"], view["pipeline"]) == ("queued", "answer")
    assert answer.headers["Location"] == view["links"]["self"]
    assert list(world.runs.runs) == [view["run_id"]]
    shown = world.client.get(f"{URL}/{view['submission_id']}")
    assert (shown.status_code, shown.json()["state"]) == (200, "queued")


def test_twenty_equal_submits_are_one_run(world: World) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: world.submit(), range(20)))
    assert {each.json()["submission_id"] for each in answers} == {answers[0].json()["submission_id"]}
    assert sorted(each.status_code for each in answers) == [200] * 19 + [202]
    assert len(world.runs.runs) == 1


def test_the_key_may_come_as_a_header_and_must_come(world: World) -> None:
    body = {"pipeline": "answer", "input": {"question": "why?"}}
    by_header = world.client.post(URL, json=body, headers={"Idempotency-Key": "k1"})
    assert by_header.status_code == 202
    assert world.submit().json()["submission_id"] == by_header.json()["submission_id"]
    for headers, changes in (({}, {}), ({"Idempotency-Key": "k2"}, {"idempotency_key": "k1"})):
        refused = world.client.post(URL, json=body | changes, headers=headers)
        assert refused.status_code == 422
        assert refused.headers["Content-Type"] == "application/problem+json"


def test_another_input_under_the_key_is_told_with_both_fingerprints(world: World) -> None:
    first = world.submit()
    other = world.submit(input={"question": "who?"})
    assert other.status_code == 409
    problem = other.json()
    assert problem["submission_id"] == first.json()["submission_id"]
    assert problem["fingerprint"] != problem["given"]
    assert len(world.runs.runs) == 1


@pytest.mark.parametrize(
    ("changes", "status", "pointer"),
    [
        ({"input": {"bodi": 1}}, 422, "/input/bodi"),
        ({"unknown": 1}, 422, "/unknown"),
        ({"labels": {"a": 1}}, 422, "/labels/a"),
        ({"labels": {"a": "x" * 101}}, 422, "/labels/a"),
        ({"idempotency_key": "a\nb"}, 422, "/idempotency_key"),
        ({"idempotency_key": "x" * 513}, 422, "/idempotency_key"),
        ({"deadline": "2026-01-01T00:00:00"}, 422, "/deadline"),
        ({"pipeline": "none"}, 404, None),
        ({"pipeline": "secret"}, 404, None),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_written(
    world: World, changes: dict[str, Any], status: int, pointer: str | None
) -> None:
    answer = world.submit(**changes)
    assert answer.status_code == status, answer.text
    if pointer:
        assert answer.json()["errors"][0]["pointer"] == pointer
    assert world.client.get(URL).json()["submissions"] == []


def test_another_users_key_is_another_task_and_who_may_not_see_sees_nothing(world: World) -> None:
    mine = world.submit().json()
    world.user = User("reader")
    assert world.submit().status_code == 403
    assert world.client.get(f"{URL}/{mine['submission_id']}").status_code == 200
    assert world.client.post(f"{URL}/{mine['submission_id']}:cancel").status_code == 403
    world.user = User("bob")
    there = world.client.get(f"{URL}/{mine['submission_id']}")
    nowhere = world.client.get(f"{URL}/01930000-0000-7000-8000-000000000000")
    assert (there.status_code, there.content) == (404, nowhere.content)
    for method, path in (("GET", "/result"), ("POST", ":cancel"), ("POST", ":retry")):
        assert world.client.request(method, f"{URL}/{mine['submission_id']}{path}").status_code == 404
    assert world.client.get(URL).json()["submissions"] == []
    assert world.submit().status_code == 404


def test_on_every_route_anothers_task_is_as_one_that_is_not_there(world: World) -> None:
    """User A against user B's task, on each route that the document names: bob may not see ann's."""
    mine = world.submit().json()["submission_id"]
    nowhere = "01930000-0000-7000-8000-000000000000"
    app: Any = next(route.app for route in world.server.routes if isinstance(route, Mount))
    asked = []
    world.user = User("bob")
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            query = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
            if "{submission_id}" not in path and "submission_id" not in query:
                continue
            asked.append(f"{method} {path}")
            url = f"/aiflow{path}" + ("?submission_id={submission_id}" if "submission_id" in query else "")
            there, missing = (
                world.client.request(method, url.replace("{submission_id}", one)) for one in (mine, nowhere)
            )
            assert (there.status_code, missing.status_code) == (404, 404), (method, path)
            assert there.content == missing.content, (method, path)
    moves = {f"post /api/v1/submissions/{{submission_id}}:{word}" for word in ("cancel", "pause", "resume", "retry")}
    reads = {f"get /api/v1/submissions/{{submission_id}}{path}" for path in ("", "/result", "/steps", "/events")}
    assert moves | reads | {"get /api/v1/events"} <= set(asked)
    mixed = f"/aiflow/api/v1/events?submission_id={mine}&submission_id={nowhere}"
    assert world.client.get(mixed).status_code == 404
    world.user = User("ann")
    assert world.client.get(f"{URL}/{mine}").json()["state"] == "queued", "nothing was done to it"
    assert world.client.get(mixed).status_code == 404, "one that is not there among one's own"


def test_the_list_shows_no_more_than_the_one_route(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may see a DAG, and not its runs, sees no submission of it."""
    world.submit()
    world.user = User("bob")
    monkeypatch.setattr(submission_routes, "readable", lambda user: ("answer",))
    assert world.client.get(URL).json()["submissions"] == []


def test_it_follows_its_run_to_the_result(world: World) -> None:
    view = world.submit().json()
    own, run = f"{URL}/{view['submission_id']}", world.runs.runs[view["run_id"]]
    early = world.client.get(f"{own}/result")
    assert (early.status_code, early.json()["state"]) == (409, "queued")
    run.state = "running"
    assert world.client.get(own).json()["state"] == "running"
    run.state = "success"
    world.runs.results[view["run_id"]] = {"answer": "because"}
    assert world.client.get(own).json()["state"] == "succeeded"
    result = world.client.get(f"{own}/result")
    assert (result.status_code, result.json()) == (200, {"answer": "because"})
    assert world.submit().json()["state"] == "succeeded"


@pytest.mark.parametrize("text", ["ok\u0000tail", "e\u0301 \ufeff \u202e \u200b", '{"amount": NaN}', ""])
def test_a_result_is_given_exactly(world: World, text: str) -> None:
    """C46, C47: a run whose answer holds U+0000 ends in success, and who polls gets that answer."""
    view = world.submit().json()
    own = f"{URL}/{view['submission_id']}"
    world.runs.runs[view["run_id"]].state = "success"
    world.runs.results[view["run_id"]] = {text: [text]}
    assert world.client.get(own).json()["state"] == "succeeded"
    assert world.client.get(f"{own}/result").json() == {text: [text]}


def test_a_result_is_given_from_where_a_client_was_cut_off(world: World) -> None:
    view = world.submit().json()
    world.runs.runs[view["run_id"]].state = "success"
    world.runs.results[view["run_id"]] = "x" * 1000
    url = f"{URL}/{view['submission_id']}/result"
    whole = world.client.get(url)
    rest = world.client.get(url, headers={"Range": "bytes=990-", "If-Range": whole.headers["ETag"]})
    assert (rest.status_code, rest.content) == (206, whole.content[990:])
    assert rest.headers["Content-Range"] == "bytes 990-1001/1002"
    assert world.client.get(url, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
    assert world.client.get(url, headers={"Range": "bytes=5000-"}).status_code == 416
    changed = world.client.get(url, headers={"Range": "bytes=990-", "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, whole.content)


def test_a_client_waits_for_news_and_not_for_ever(world: World) -> None:
    view = world.submit().json()
    own, run = f"{URL}/{view['submission_id']}", world.runs.runs[view["run_id"]]
    first = world.client.get(own)
    tag = {"If-None-Match": first.headers["ETag"]}
    assert world.client.get(own, headers=tag).status_code == 304
    assert world.client.get(own, params={"wait": 3}, headers=tag).status_code == 304
    assert sum(world.waits) == 3

    def begins() -> None:
        run.state = "running"

    world.on_wait = begins
    news = world.client.get(own, params={"wait": 20}, headers=tag)
    assert (news.status_code, news.json()["state"]) == (200, "running")
    assert world.client.get(own, params={"wait": 60}).status_code == 422


def test_when_to_ask_again_grows(world: World) -> None:
    own = f"{URL}/{world.submit().json()['submission_id']}"
    asked = [world.client.get(own, headers={"X-Aiflow-Asked": str(n)}).headers["Retry-After"] for n in range(6)]
    assert asked == ["1", "2", "4", "8", "10", "10"]


def test_cancel_ends_the_run_once(world: World) -> None:
    view = world.submit().json()
    own = f"{URL}/{view['submission_id']}"
    for _ in range(2):
        answer = world.client.post(f"{own}:cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled"), answer.text
    assert world.runs.runs[view["run_id"]].state == "failed"


def test_what_has_succeeded_is_not_cancelled_and_reopened_by_retry_alone(world: World) -> None:
    view = world.submit().json()
    own, run = f"{URL}/{view['submission_id']}", world.runs.runs[view["run_id"]]
    assert world.client.post(f"{own}:retry").status_code == 409
    run.state = "success"
    assert world.client.post(f"{own}:cancel").status_code == 409
    run.state = "running"  # somebody cleared it in Airflow
    assert world.client.get(own).json()["state"] == "succeeded"
    assert world.client.post(f"{own}:retry").json()["state"] == "queued"
    assert world.runs.cleared == [(view["run_id"], False)]


def test_a_failed_one_comes_back_by_recovery_or_by_retry(world: World) -> None:
    view = world.submit().json()
    own, run = f"{URL}/{view['submission_id']}", world.runs.runs[view["run_id"]]
    run.state = "failed"
    assert world.client.get(own).json()["state"] == "failed"
    run.state = "running"
    assert world.client.get(own).json()["state"] == "running"
    run.state = "failed"
    assert world.client.post(f"{own}:retry").json()["state"] == "queued"
    assert world.runs.cleared == [(view["run_id"], True)]


def test_a_run_that_could_not_be_made_is_made_by_the_next_round(world: World) -> None:
    world.runs.away = True
    answer = world.submit()
    assert answer.status_code == 202
    assert world.runs.runs == {}
    assert world.client.get(answer.json()["links"]["self"]).json()["state"] == "queued"
    assert world.service.heal(older_than=3600) == 0
    assert world.service.heal(older_than=0) == 1  # and Airflow is still away
    world.runs.away = False
    assert world.service.heal(older_than=0) == 0  # it was put off, so that it does not stand before others for ever
    world.sql("update aiflow.submission set make_after = clock_timestamp()")
    world.service.heal(older_than=0)
    assert list(world.runs.runs) == [answer.json()["run_id"]]
    assert world.service.heal(older_than=0) == 0


def test_one_that_is_cancelled_before_its_run_is_made_gets_none(world: World) -> None:
    world.runs.away = True
    own = world.submit().json()["links"]["self"]
    assert world.client.post(f"{own}:cancel").json()["state"] == "cancelled"
    world.runs.away = False
    world.service.heal(older_than=0)
    assert world.runs.runs == {}


def test_one_whose_deadline_is_over_gets_no_run(world: World) -> None:
    own = world.submit(deadline="2020-01-01T00:00:00Z").json()["links"]["self"]
    assert world.client.get(own).json()["state"] == "cancelled"
    assert world.runs.runs == {}


def test_the_steps_that_are_recorded_are_listed(world: World) -> None:
    view = world.submit().json()
    url = f"{view['links']['self']}/steps"
    assert world.client.get(url).json() == {"steps": [], "truncated": False}
    ledger = PostgresLedger.connect(world.dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), dag_id="answer", run_id=view["run_id"], task_id="run")
    task.run(lambda flow: [flow.step("add", sum, [number, 1]) for number in range(3)])
    ledger.close()
    found = world.client.get(url).json()
    assert [(each["name"], each["task_id"], each["attempt"]) for each in found["steps"]] == [("add", "run", 1)] * 3
    assert found["truncated"] is False
    few = world.client.get(url, params={"limit": 2}).json()
    assert (len(few["steps"]), few["truncated"]) == (2, True)
    assert world.client.get(url, params={"limit": 0}).status_code == 422


def test_pages_lead_to_each_other(world: World) -> None:
    made = [world.submit(idempotency_key=str(n), labels={"n": str(n % 2)}).json()["submission_id"] for n in range(5)]
    first = world.client.get(URL, params={"limit": 2}).json()
    second = world.client.get(first["next"]).json()
    third = world.client.get(second["next"]).json()
    assert third["next"] is None
    found = [each["submission_id"] for page in (first, second, third) for each in page["submissions"]]
    assert sorted(found) == sorted(made)
    odd = world.client.get(URL, params={"label": "n:1"}).json()["submissions"]
    assert {each["submission_id"] for each in odd} == {made[1], made[3]}
    assert world.client.get(URL, params={"label": "n"}).status_code == 422


def test_a_list_says_nothing_where_it_has_not_counted(world: World) -> None:
    view = world.submit().json()
    world.runs.runs[view["run_id"]].state = "success"
    shown = world.client.get(view["links"]["self"]).json()
    assert (shown["state"], shown["attempts"], shown["cost"]) == ("succeeded", 0, "0")
    [listed] = world.client.get(URL).json()["submissions"]
    assert (listed["state"], listed["attempts"], listed["cost"]) == ("succeeded", None, None)


def test_the_progress_of_what_is_at_work_is_told(world: World) -> None:
    view = world.submit().json()
    ledger = PostgresLedger.connect(world.dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), dag_id="answer", run_id=view["run_id"])
    try:
        with open_flow(task.attempt(), task.services) as flow:
            flow.progress(3, 12, "page 3")
            flow.step("page", lambda: "text")  # its commit brings the event along
            shown = world.client.get(view["links"]["self"])
            tag = world.client.get(view["links"]["self"]).headers["ETag"]
        assert shown.json()["progress"] == {
            "done": 3, "total": 12, "steps": [], "message": "page 3", "eta_seconds": None,
        }  # fmt: skip
        assert tag == shown.headers["ETag"]
    finally:
        ledger.close()
    assert world.client.get(view["links"]["self"]).json()["progress"] is None
