"""Airflow's door to the inbox: what is shown, what waits in the inbox alone, and what a choice means."""

from __future__ import annotations

import datetime as dt
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId
from airflow_aiflow.durable.inbox import Form
from airflow_aiflow.exceptions import AttemptAsks
from airflow_aiflow.hooks.airflow_form import IN_INBOX, numbers_in, person, task_path
from airflow_aiflow.hooks.asking import LONGEST_PAUSE, Door, door_of, read_choices
from airflow_aiflow.hooks.host import AirflowHost
from airflow_aiflow.hooks.persons import AsksPersons

TASK = ExecutionId("a dag", "manual__2026-11-29T18:00:00+00:00", "group.work")
FORM = Form(
    subject='Did "pay" happen?',
    body="Begun 18:40:03",
    options={"It happened (#7)": ((7, "happened"),), "Answer one by one (#7)": ()},
)


class Operator(AsksPersons):
    """What Airflow calls."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def execute(self, context: Any) -> str:
        self.ran.append(context)
        return "done"


def door(task: Any, *, looks: int = 0, delay: float = 30.0) -> Door:
    return Door(TASK, "ti", 1, task, looks, AirflowHost(), delay)


def pause(door: Door, asked: float) -> float:
    before = dt.datetime.now(dt.UTC)
    signal = door.park(AttemptAsks(FORM, asked, "effect 'pay' waits for a person (#7)"))
    assert isinstance(signal, AirflowRescheduleException)
    return float(round((signal.reschedule_date - before).total_seconds()))


@pytest.mark.parametrize(
    ("task", "why"),
    [(object(), "can't go on from Airflow's form"), (Operator(), "no scheduled task")],
    ids=["a plain task", "dag.test()"],
)
def test_where_no_form_can_be_shown_the_task_waits_in_the_inbox(
    task: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="airflow_aiflow.flow"):
        assert pause(door(task), 1) == 30
    [line] = caplog.messages
    assert line.startswith("aiflow: effect 'pay' waits for a person (#7); the slot goes back.")
    assert why in line
    assert "aiflow effects" in line


@pytest.mark.parametrize(
    ("looks", "asked", "waits"),
    [(0, 1, 30), (9, 1, 30), (10, 1, 60), (35, 1, 120), (500, 1, LONGEST_PAUSE), (0, 900, 900), (50, 900, 900)],
)
def test_looks_into_the_inbox_become_rarer(looks: int, asked: float, waits: float) -> None:
    assert pause(door(Operator(), looks=looks), asked) == waits


def test_a_door_knows_its_task_instance() -> None:
    task = Operator()
    context: Any = {"ti": SimpleNamespace(id="x", try_number=3), "task": task, "task_reschedule_count": 4}
    found = door_of(context, TASK, AirflowHost(), reschedule_delay=20)
    assert (found.ti_id, found.try_number, found.task, found.looks, found.reschedule_delay) == ("x", 3, task, 4, 20)


def test_only_masked_texts_are_shown() -> None:
    reset_secrets_masker()
    mask_secret("hunter2-and-more")
    secret = Form("to hunter2-and-more?", "with hunter2-and-more", {"Send hunter2-and-more (#7)": ((7, "happened"),)})
    try:
        shown, choices = door(Operator())._masked(secret)
    finally:
        reset_secrets_masker()
    assert (shown.subject, shown.body) == ("to ***?", "with ***")
    assert choices == {"Send *** (#7)": [(7, "happened")]}


@pytest.mark.parametrize(
    ("event", "used"),
    [
        (None, False),
        ({"error": "The response timeout has passed", "error_type": "timeout"}, False),
        ({"chosen_options": ["It happened (#7)"], "params_input": {IN_INBOX: True}}, False),
        ({"chosen_options": ["Answer one by one (#7)"], "params_input": {}, "responded_by_user": None}, True),
        ({"chosen_options": ["of an older form (#3)"], "params_input": {}, "responded_by_user": None}, True),
    ],
    ids=["nothing", "time over", "answered in the inbox", "one by one", "unknown"],
)
def test_a_response_without_a_word_lets_the_body_run_once_more(event: Any, used: bool) -> None:
    task, context = Operator(), {"ti": "context"}
    choices = {"It happened (#7)": [[7, "happened"]], "Answer one by one (#7)": []}
    assert task.answered(context, event=event, choices=choices) == "done"  # type: ignore[arg-type]
    assert task.ran == [context]
    assert task.form_is_used is used


def test_choices_come_back_as_they_went() -> None:
    assert read_choices({"Yes (#1)": [["1", "Approve"]], "No": []}) == {"Yes (#1)": [(1, "Approve")], "No": []}
    assert read_choices(None) == {}


def test_a_form_is_about_the_numbers_in_its_options() -> None:
    options = ["All happened (#7, #12)", "None happened: run them (#7, #12)", "Fail the task (#9)"]
    assert numbers_in(options) == {7, 9, 12}
    assert numbers_in(["Approve", "room 12"]) == frozenset()


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"id": "admin", "name": "admin"}, "admin"),
        ({"id": "4", "name": "Ada Lovelace"}, "Ada Lovelace (4)"),
        ({"id": "4", "name": None}, "4"),
        ({}, "unknown"),
        (None, "unknown"),
    ],
)
def test_who_answered(user: Any, named: str) -> None:
    assert person(user) == named


def test_a_task_instances_path_is_quoted() -> None:
    quoted = "/dags/a%20dag/dagRuns/manual__2026-11-29T18%3A00%3A00%2B00%3A00/taskInstances/group.work/"
    assert task_path(TASK) == f"{quoted}{UNMAPPED}"
    assert task_path(ExecutionId(TASK.dag_id, TASK.run_id, TASK.task_id, 3)) == f"{quoted}3"
