"""When a waiting task is told to go on, and what people read where it is not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import Answer, Question
from airflow_aiflow.exceptions import AirflowRefusedError
from airflow_aiflow.hooks.airflow_form import IN_INBOX, task_path
from airflow_aiflow.hooks.waiting_task import SAFE_AFTER, STARTING, Told, let_go
from airflow_aiflow.testing.clock import ManualClock

TASK = ExecutionId("d", "r", "t")
OPTIONS = ["It happened (#7)", "It did not happen: run it (#7)", "Fail the task (#8)"]


class Api:
    """What Airflow's API says, one state after another."""

    def __init__(
        self, clock: ManualClock, *states: str | None, age: float = 60.0, options: list[str] = OPTIONS
    ) -> None:
        self.states: Iterator[str | None] = iter(states)
        self.state: str | None = None
        self.created = clock.now() - dt.timedelta(seconds=age)
        self.queued: str | None = None
        self.options = options
        self.patched: list[Any] = []

    def request(self, method: str, path: str, *, params: Any = None, body: Any = None) -> Any:
        if path == task_path(TASK):
            self.state = next(self.states, self.state)
            if self.state is None:
                raise AirflowRefusedError(method, path, 404, "not found")
            return {"state": self.state, "queued_when": self.queued}
        assert path == f"{task_path(TASK)}/hitlDetails"
        if method == "PATCH":
            self.patched.append(body)
            return {}
        return {
            "subject": "?",
            "options": self.options,
            "created_at": self.created.isoformat(),
            "response_received": False,
        }


class Inbox:
    """An inbox with some questions."""

    def __init__(self, *still_open: int) -> None:
        self.still_open = still_open

    def question(self, number: int) -> Question:
        answer = None if number in self.still_open else Answer("Approve", "ada", dt.datetime.now(dt.UTC))
        return Question(number, "ask", "q", TASK, "?", "", ("Approve",), (), dt.datetime.now(dt.UTC), None, answer)


def told(api: Api, clock: ManualClock, *still_open: int, option: str = "happened") -> Told:
    inbox: Any = Inbox(*still_open)
    client: Any = api
    return let_go(client, inbox, TASK, parked_at=None, option=option, clock=clock)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (None, "gone"),
        ("queued", "by itself"),
        ("up_for_reschedule", "later"),
        ("failed", "clear"),
        ("success", "clear"),
        ("awaiting_input", "told"),
    ],
)
def test_what_is_said_follows_the_tasks_state(state: str | None, outcome: str) -> None:
    clock = ManualClock()
    api = Api(clock, state)
    found = told(api, clock)
    assert found.outcome == outcome
    assert "{" not in found.sentence
    assert bool(api.patched) is (outcome == "told")
    assert clock.waits == []


@pytest.mark.parametrize("option", ["Approve", "Fail the task"])
def test_an_answer_that_comes_after_the_tasks_end_is_not_said_to_count_after_a_clear(option: str) -> None:
    """A word on a call stands for ever; a cleared task asks its own questions anew."""
    clock = ManualClock()
    found = told(Api(clock, "failed"), clock, option=option)
    assert (found.outcome, "asks anew" in found.sentence) == ("ended", True)
    assert "goes on from here" not in found.sentence


@pytest.mark.parametrize(("age", "waits"), [(2.0, SAFE_AFTER - 2), (SAFE_AFTER + 1, 0), (-3600.0, SAFE_AFTER)])
def test_a_task_is_not_let_go_before_airflow_heard_of_its_parking(age: float, waits: float) -> None:
    """A clock of another machine that is an hour ahead costs no hour."""
    clock = ManualClock()
    api = Api(clock, "awaiting_input", age=age)
    assert told(api, clock).outcome == "told"
    assert sum(clock.waits) == waits
    assert api.patched == [{"chosen_options": ["It happened (#7)"], "params_input": {IN_INBOX: True}}]


def test_a_task_that_looked_and_parked_again_is_given_the_same_time() -> None:
    clock = ManualClock()
    api = Api(clock, "awaiting_input", age=3600)
    api.queued = (clock.now() - dt.timedelta(seconds=STARTING + 4)).isoformat()
    assert told(api, clock).outcome == "told"
    assert sum(clock.waits) == SAFE_AFTER - 4


def test_a_task_that_is_about_to_park_is_waited_for() -> None:
    clock = ManualClock()
    api = Api(clock, "running", "running", "awaiting_input")
    assert told(api, clock, option="did_not_happen").outcome == "told"
    assert api.patched[0]["chosen_options"] == ["It did not happen: run it (#7)"]


def test_a_task_that_runs_on_finds_the_answer_by_itself() -> None:
    clock = ManualClock()
    assert told(Api(clock, "running"), clock).outcome == "by itself"


def test_a_form_that_asks_more_is_left_open() -> None:
    clock = ManualClock()
    api = Api(clock, "awaiting_input", options=["All happened (#7, #9)", "None happened: run them (#7, #9)"])
    found = told(api, clock, 9)
    assert (found.outcome, api.patched) == ("asks more", [])
    assert "#9" in found.sentence


def test_who_shall_fail_is_let_go_though_the_doubt_stays() -> None:
    clock = ManualClock()
    api = Api(clock, "awaiting_input")
    assert told(api, clock, 7, 8, option="Fail the task").outcome == "told"
    assert api.patched[0]["chosen_options"] == ["Fail the task (#8)"]


def test_an_answer_of_ones_own_is_found_among_the_options() -> None:
    clock = ManualClock()
    api = Api(clock, "awaiting_input", options=["Approve (#7)", "Reject (#7)"])
    told(api, clock, option="Reject")
    assert api.patched[0]["chosen_options"] == ["Reject (#7)"]
