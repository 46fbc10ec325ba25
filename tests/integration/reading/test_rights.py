"""One user against another's, on every route: what one may not see is not there, and never in a list."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fastapi import HTTPException
from fastapi.routing import APIRoute

from airflow_aiflow.api import rights
from tests.integration.reading.house import URL, House, User

SECRET = {"dag_id": "secret", "run_id": "tuesday", "task_id": "book_secret_1"}
OURS = {"dag_id": "invoices", "run_id": "monday", "task_id": "split"}

#: Each route that is about one DAG or number: path, query or body. ``{number}`` is a doubt of the DAG ``secret``.
HIDDEN: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/executions", {"dag_id": "secret", "run_id": "tuesday"}),
    ("GET", "/timeline", SECRET),
    ("GET", "/units", SECRET | {"map": "read"}),
    ("GET", "/step", SECRET | {"key": "0" * 64}),
    ("GET", f"/artifacts/{'0' * 64}", SECRET),
    ("GET", "/diff", SECRET | {"generation_a": 1, "generation_b": 1}),
    ("GET", "/dags/secret/history", {}),
    ("GET", "/batches/failed", {"dag_id": "secret", "run_id": "tuesday"}),
    ("GET", "/effects/{number}", {}),
    ("POST", "/effects/{number}:resolve", {"decision": "happened"}),
    ("POST", "/effects/{number}:release", {"reason": "again"}),
    ("POST", "/effects/{number}:compensate", {"reason": "back"}),
    ("POST", "/inbox/{number}:answer", {"option": "Approve"}),
    ("POST", "/clear:preview", {"dag_id": "secret", "run_id": "tuesday"}),
    ("POST", "/clear:wish", {"dag_id": "secret", "run_id": "tuesday", "on_clear": "fresh"}),
    ("POST", "/clear:wish_settled", {"dag_id": "secret", "run_id": "tuesday", "cleared": True}),
    ("POST", "/batches:retry_failed", {"dag_id": "secret", "run_id": "tuesday"}),
]
#: Routes that list or sum up: what is hidden is left out.
LISTS = [
    "/overview",
    "/inbox",
    "/inbox/count",
    "/inbox/answers",
    "/effects",
    "/recoveries",
    "/batches",
    "/search?q=secret/1",
]
#: Routes without a DAG.
OPEN_TO_ALL = ["/limits"]


def ask(house: House, method: str, path: str, given: dict[str, Any]) -> Any:
    path = path.replace("{number}", str(house.secret_doubt))
    return house.get(path, **given) if method == "GET" else house.post(path, **given)


def test_every_route_is_in_these_tables(house: House) -> None:
    asked = {path.partition("?")[0] for _, path, _ in HIDDEN} | {path.partition("?")[0] for path in LISTS}
    asked |= {*OPEN_TO_ALL, "/inbox:answer_many"}
    known = {
        route.path.removeprefix("/api/v1").replace("{sha256}", "0" * 64).replace("{dag_id}", "secret")
        for route in house.app.routes
        if isinstance(route, APIRoute)
    }
    assert known == asked


@pytest.mark.parametrize(("method", "path", "given"), HIDDEN)
@pytest.mark.parametrize("user", ["ann", "reader", "stranger"])
def test_what_one_may_not_see_is_not_there(
    house: House, user: str, method: str, path: str, given: dict[str, Any]
) -> None:
    house.user = User(user)
    answer = ask(house, method, path, given)
    assert answer.status_code == 404, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(("method", "path", "given"), HIDDEN)
def test_it_is_answered_as_what_does_not_exist(house: House, method: str, path: str, given: dict[str, Any]) -> None:
    """Nobody learns from the words of a refusal whether there is something."""
    hidden = ask(house, method, path, given)
    other = {name: "nowhere" if name == "dag_id" else value for name, value in given.items()}
    missing = house.post if method == "POST" else house.get
    absent = missing(path.replace("{number}", str(2**62)).replace("/dags/secret", "/dags/nowhere"), **other)
    if "dag_id" in given or "/dags/" in path:
        # This user may read any other DAG: so it is asked as one who may read nothing.
        house.user = User("stranger")
        absent = missing(path.replace("/dags/secret", "/dags/nowhere"), **other)
    assert (hidden.status_code, hidden.json()) == (absent.status_code, absent.json())


@pytest.mark.parametrize("path", LISTS)
def test_lists_hold_nothing_that_one_may_not_see(house: House, path: str) -> None:
    assert "secret" not in house.client.get(URL + path).text
    house.user = User("stranger")
    answer = house.client.get(URL + path)
    assert answer.status_code == 200
    for name in ("invoices", "billing", "secret", "monday"):
        assert name not in answer.text


DEEDS: list[tuple[str, dict[str, Any]]] = [
    ("/effects/{number}:resolve", {"decision": "happened"}),
    ("/effects/{number}:release", {"reason": "again"}),
    ("/effects/{number}:compensate", {"reason": "back"}),
    ("/inbox/{asked}:answer", {"option": "Approve"}),
    ("/clear:wish", {"dag_id": "invoices", "run_id": "monday", "on_clear": "fresh"}),
    ("/clear:wish_settled", {"dag_id": "invoices", "run_id": "monday", "cleared": True}),
    ("/batches:retry_failed", {"dag_id": "invoices", "run_id": "monday"}),
]


@pytest.mark.parametrize(("path", "body"), DEEDS)
def test_who_may_only_read_is_told_so_and_changes_nothing(house: House, path: str, body: dict[str, Any]) -> None:
    house.user = User("reader")
    path = path.replace("{number}", str(house.first_doubt)).replace("{asked}", str(house.asked))
    answer = house.post(path, **body)
    assert answer.status_code == 403, answer.text
    assert [one["may_answer"] for one in house.get("/inbox").json()["items"]] == [False] * 3


def test_one_word_on_several_counts_only_where_it_may(house: House) -> None:
    house.user = User("reader")
    numbers = [house.first_doubt, house.secret_doubt, 2**62, -1]
    answer = house.post("/inbox:answer_many", numbers=numbers, decision="happened").json()
    assert answer["counted"] == 0
    assert [one["counts"] for one in answer["items"]] == [False] * 4
    assert {one["why"] for one in answer["items"][1:]} == {"there is nothing of this number, or it is not yours to see"}


def test_results_need_a_right_of_their_own(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    may = rights.may

    def no_results(user: Any, method: Any, dag_id: str, entity: Any = None) -> bool:
        return "XCOM" not in str(entity) and may(user, method, dag_id)

    [key] = house.sql("select encode(step_key, 'hex') from aiflow.step where name = 'book'")
    monkeypatch.setattr(rights, "may", no_results)
    step = house.get("/step", **OURS, key=key[0]).json()
    assert (step["result"], step["arguments"]) == (None, None)
    assert house.get(f"/artifacts/{'0' * 64}", **OURS).status_code == 403
    review = OURS | {"task_id": "review"}
    diff = house.get("/diff", **review, generation_a=1, generation_b=2).text
    assert "answer to" not in diff


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""])
@pytest.mark.parametrize(("path", "body"), DEEDS)
def test_a_body_that_is_no_json_is_refused(house: House, path: str, body: dict[str, Any], media_type: str) -> None:
    path = path.replace("{number}", str(house.first_doubt)).replace("{asked}", str(house.asked))
    answer = house.client.post(URL + path, content=b"decision=happened", headers={"Content-Type": media_type})
    assert answer.status_code == 415


def test_nothing_is_open(house: House) -> None:
    """Each route asks who it is: without the stand-in that lets a test in, nobody is."""

    def nobody() -> None:
        raise HTTPException(401, "Not authenticated")

    house.app.dependency_overrides[rights.signed_in] = nobody
    try:
        for method, path, given in HIDDEN + [("GET", path.partition("?")[0], {"q": "x"}) for path in LISTS]:
            assert ask(house, method, path, given).status_code == 401, path
        assert house.get("/limits").status_code == 401
        assert house.post("/inbox:answer_many", numbers=[1], decision="fail").status_code == 401
    finally:
        house.app.dependency_overrides[rights.signed_in] = lambda: house.user


NASTY = [
    "..",
    "../../etc",
    "a/b",
    "a\n",
    "\n",
    "%00",
    "a" * 250,
    "a" * 251,
    "ä\u202e\U0001f600",
    "' or 1=1 --",
    "%s",
    "*",
    "",
    "\x00",
    "null",
]


@pytest.mark.parametrize("text", NASTY)
def test_any_text_as_an_id_is_not_found_or_malformed(house: House, text: str) -> None:
    for path, more in (("/timeline", {}), ("/units", {"map": text}), ("/step", {"key": "0" * 64})):
        answer = house.get(path, dag_id="invoices", run_id=text, task_id=text, **more)
        assert answer.status_code in (404, 422), (path, answer.text)
    for path in ("/executions", "/batches/failed"):
        assert house.get(path, dag_id="invoices", run_id=text).status_code in (200, 422)
    assert house.get("/search", q=text).status_code in (200, 422)
    assert house.get("/effects", key=text, name=text, run_id=text).status_code in (200, 422)
    assert house.get("/inbox", dag_id=text, run_id=text).status_code in (200, 422)
    body = {"dag_id": "invoices", "run_id": text, "task_ids": [text]}
    assert house.post("/clear:preview", **body).status_code in (404, 422)


def test_any_number_is_not_found_or_malformed(house: House) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    numbers: list[Any] = [0, -1, 2**63 - 1, 2**63, 10**30, "1e3", "0x1", "1.5", " 999999", "٩٩٩٩٩"]
    numbers += [chance.randrange(100, 2**63) for _ in range(10)]
    for number in numbers:
        assert house.get(f"/effects/{number}").status_code in (404, 422), number
        answer = house.post(f"/effects/{number}:resolve", decision="happened")
        assert answer.status_code in (404, 422), number
        if number != -1:
            assert house.get("/timeline", **OURS, map_index=number).status_code in (404, 422), number
