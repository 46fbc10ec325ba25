"""What meets between two steps of one move: a killed server, somebody who looks, a DAG that takes nothing new now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from airflow_aiflow.durable.submission import Submission
from airflow_aiflow.exceptions import AirflowUnavailableError, SubmissionRefusedError
from tests.integration.api.conftest import URL, World


def _die_after_making(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(submission_id: UUID) -> None:
        raise ConnectionError("killed")

    monkeypatch.setattr(world.submissions, "made", killed)


def test_a_run_made_by_a_killed_server_is_called_cancelled_after_its_deadline_once_it_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _die_after_making(world, patch)
        one = world.submit(deadline=(datetime.now(UTC) + timedelta(hours=1)).isoformat()).json()
    world.runs.runs[one["run_id"]].state = "running"
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("update aiflow.submission set deadline = clock_timestamp()")
    assert world.service.heal(older_than=0) == 1
    assert world.runs.runs[one["run_id"]].state == "running"
    assert world.client.get(one["links"]["self"]).json()["state"] == "cancelled"
    assert world.runs.runs[one["run_id"]].state == "failed"


def test_a_run_made_by_a_killed_server_for_one_cancelled_meanwhile_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = world.runs.make

    def cancelled_before(submission: Submission) -> None:
        world.client.post(f"{URL}/{submission.submission_id}:cancel")
        make(submission)

    with monkeypatch.context() as patch:
        _die_after_making(world, patch)
        patch.setattr(world.runs, "make", cancelled_before)
        one = world.submit().json()
    world.runs.runs[one["run_id"]].state = "running"
    assert world.client.get(one["links"]["self"]).json()["state"] == "cancelled"
    assert world.runs.runs[one["run_id"]].state == "failed"


def test_who_looks_while_it_is_retried_does_not_end_it_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = _succeeded(world)
    again = world.runs.again

    def looked_at(submission: Submission, *, only_failed: bool) -> bool:
        assert world.client.get(one["links"]["self"]).json()["state"] == "succeeded"
        return again(submission, only_failed=only_failed)

    monkeypatch.setattr(world.runs, "again", looked_at)
    assert world.client.post(f"{one['links']['self']}:retry").json()["state"] == "queued"
    world.runs.runs[one["run_id"]].state = "running"
    assert world.client.get(one["links"]["self"]).json()["state"] == "running"


def test_a_success_whose_run_is_gone_stays_one(world: World) -> None:
    one = _succeeded(world)
    del world.runs.runs[one["run_id"]]
    assert world.client.post(f"{one['links']['self']}:retry").status_code == 409
    assert world.client.get(one["links"]["self"]).json()["state"] == "succeeded"


def test_a_repeat_finds_its_task_also_where_the_dag_takes_nothing_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.submit().json()

    def closed(pipeline: str, given: Mapping[str, Any]) -> None:
        raise SubmissionRefusedError("answer has import errors and can't be run", "/pipeline")

    monkeypatch.setattr(world.runs, "check", closed)
    repeat = world.submit()
    assert (repeat.status_code, repeat.json()["submission_id"]) == (200, one["submission_id"])
    assert world.submit(idempotency_key="k2").status_code == 422
    assert world.submit(input={"question": "another"}).status_code == 422


def test_a_result_that_is_gone_is_no_fault_of_the_server(world: World) -> None:
    assert world.client.get(f"{_succeeded(world)['links']['self']}/result").status_code == 410


def test_a_range_beyond_all_numbers_is_refused(world: World) -> None:
    one = _succeeded(world)
    world.runs.results[one["run_id"]] = "x"
    headers = {"Range": f"bytes={'9' * 5000}-"}
    assert world.client.get(f"{one['links']['self']}/result", headers=headers).status_code == 416


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", W/{}'])
def test_a_tag_that_a_proxy_made_weak_is_known(world: World, form: str) -> None:
    one = world.submit().json()
    tag = world.client.get(one["links"]["self"]).headers["ETag"]
    headers = {"If-None-Match": form.format(tag)}
    assert world.client.get(one["links"]["self"], params={"wait": 1}, headers=headers).status_code == 304


def _succeeded(world: World) -> dict[str, Any]:
    one: dict[str, Any] = world.submit().json()
    world.runs.runs[one["run_id"]].state = "success"
    assert world.client.get(one["links"]["self"]).json()["state"] == "succeeded"
    return one


def test_a_retry_of_one_that_was_refused_makes_its_run_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(submission: Submission) -> None:
        raise SubmissionRefusedError("answer: no run can be made")

    with monkeypatch.context() as patch:
        patch.setattr(world.runs, "make", refused)
        one = world.submit().json()
    assert world.client.get(one["links"]["self"]).json()["state"] == "failed"
    assert world.client.post(f"{one['links']['self']}:retry").json()["state"] == "queued"
    assert one["run_id"] in world.runs.runs


def test_healing_stops_where_airflow_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def silent(submission: Submission) -> None:
        asked.append(submission.run_id)
        raise AirflowUnavailableError("no answer for 30 s")

    monkeypatch.setattr(world.runs, "make", silent)
    for number in range(3):
        world.submit(idempotency_key=f"k{number}")
    asked.clear()
    with pytest.raises(AirflowUnavailableError):
        world.service.heal(older_than=0)
    assert len(asked) == 1
