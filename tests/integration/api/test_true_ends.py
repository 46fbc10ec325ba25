"""What is told of an end is how it ended, whatever a look that came late believed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from airflow_aiflow.durable.submission import SubmissionState
from tests.integration.api.conftest import World

pytestmark = pytest.mark.timeout(120)


def told(world: World) -> list[str]:
    rows = world.submissions._ask("select state::text from aiflow.callback order by created_at", {})
    return [row[0] for row in rows]


@pytest.fixture
def one(world: World) -> UUID:
    found = UUID(world.submit().json()["submission_id"])
    world.sql("update aiflow.submission set callback_url = 'https://hooks.example.com/'")
    return found


def test_who_did_not_know_of_the_cancel_does_not_call_it_failed(world: World, one: UUID) -> None:
    late = world.submissions.get(one)
    assert late is not None
    world.submissions.ask(one, cancel=True)
    world.submissions.moved_many([(late, SubmissionState.FAILED)])
    now = world.submissions.get(one)
    assert now is not None
    assert (now.state, told(world)) == (SubmissionState.CANCELLED, ["cancelled"])


def test_who_looks_while_a_retry_clears_the_run_tells_nobody(
    world: World, one: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = next(iter(world.runs.runs.values()))
    run.state = "failed"
    world.service.press_on()
    again = world.runs.again

    def looked_at(submission: Any, *, only_failed: bool) -> bool:
        world.service.press_on()
        return again(submission, only_failed=only_failed)

    monkeypatch.setattr(world.runs, "again", looked_at)
    failed = world.service.get(one)
    assert failed is not None
    world.service.retry(failed)
    now = world.submissions.get(one)
    assert now is not None
    assert (now.state, told(world)) == (SubmissionState.QUEUED, ["failed"])


def test_a_retry_after_the_deadline_runs(world: World) -> None:
    view = world.submit(deadline="2099-01-01T00:00:00Z").json()
    own, run = view["links"]["self"], world.runs.runs[view["run_id"]]
    run.state = "success"
    assert world.client.get(own).json()["state"] == "succeeded"
    world.sql("update aiflow.submission set deadline = clock_timestamp()")
    assert world.client.post(f"{own}:retry").json()["state"] == "queued"
    run.state = "running"
    for _ in range(3):
        world.service.press_on()
    assert (world.client.get(own).json()["state"], run.state) == ("running", "running")
