"""Recovery carries on what clients wished where no API server lives: through Airflow's REST API alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from airflow_aiflow.durable.submission import SubmissionState
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.recovery.unmade import end_wished
from tests.integration.api.conftest import World


class RestApi:
    """Answer as Airflow's REST API does, from the world's runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ended: list[str] = []

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        if run_id not in self.world.runs.runs:
            raise AirflowRefusedError("GET", run_id, 404, "not found")
        return {"state": self.world.runs.runs[run_id].state, "run_after": DUE}

    def request(self, method: str, path: str, *, params: Any = None, body: Any = None) -> Any:
        assert (method, body) == ("PATCH", {"state": "failed"})
        run_id = path.rpartition("/")[2]
        self.ended.append(run_id)
        self.world.runs.runs[run_id].state = "failed"


DUE = "2026-11-30T12:00:00+00:00"


@pytest.fixture
def api(world: World) -> RestApi:
    return RestApi(world)


def state(world: World, view: dict[str, Any]) -> SubmissionState:
    found = world.submissions.get(UUID(view["submission_id"]))
    assert found is not None
    return found.state


def carried_on(world: World, api: Any) -> int:
    return end_wished(world.submissions, api)


def submitted(world: World, **more: Any) -> dict[str, Any]:
    view: dict[str, Any] = world.submit(**more).json()
    world.runs.runs[view["run_id"]].state = "running"
    return view


def test_what_was_cancelled_gets_its_time_and_is_then_ended(world: World, api: RestApi) -> None:
    view = submitted(world)
    world.submissions.ask(UUID(view["submission_id"]), cancel=True)
    assert carried_on(world, api) == 1
    assert (api.ended, state(world, view)) == ([], SubmissionState.QUEUED)
    world.sql("update aiflow.submission set cancel_asked_at = cancel_asked_at - interval '10 minutes'")
    carried_on(world, api)
    assert (api.ended, state(world, view)) == ([view["run_id"]], SubmissionState.CANCELLED)
    assert carried_on(world, api) == 0


def test_what_is_over_its_deadline_is_cancelled(world: World, api: RestApi) -> None:
    view = submitted(world, deadline="2099-01-01T00:00:00Z")
    assert carried_on(world, api) == 0
    world.sql("update aiflow.submission set deadline = clock_timestamp()")
    carried_on(world, api)
    found = world.submissions.get(UUID(view["submission_id"]))
    assert found is not None
    assert (found.cancel_asked, api.ended) == (True, [])


def test_a_hold_is_left_to_a_server(world: World, api: RestApi) -> None:
    view = submitted(world)
    world.submissions.ask(UUID(view["submission_id"]), hold=True)
    assert carried_on(world, api) == 0
    assert api.ended == []


def test_the_end_of_one_with_a_callback_is_noted(world: World, api: RestApi) -> None:
    view = submitted(world)
    world.sql("update aiflow.submission set callback_url = 'https://hooks.example.com/'")
    assert carried_on(world, api) == 1
    assert state(world, view) is SubmissionState.QUEUED, "only its end is noted: what it does REST can't tell"
    world.runs.runs[view["run_id"]].state = "success"
    carried_on(world, api)
    assert state(world, view) is SubmissionState.SUCCEEDED
    del world.runs.runs[view["run_id"]]
    assert carried_on(world, api) == 0
