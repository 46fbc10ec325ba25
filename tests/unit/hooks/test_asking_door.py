"""
The door inside a task process: when a form is shown, when the task waits in the inbox alone, how a lost answer is read.

What Airflow itself does is played here; ``tests/airflow/test_asking.py`` has the real one.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any
from uuid import uuid4

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException, TaskAwaitingInput

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import Form
from airflow_aiflow.exceptions import AiflowConfigError, AirflowUnavailableError, AttemptAsks
from airflow_aiflow.hooks import aiflow, asking, supervisor, upstream
from airflow_aiflow.hooks.airflow_form import IN_INBOX, AirflowForm
from airflow_aiflow.hooks.asking import INBOX_LINK, LOOK_AGAIN, LOOK_AGAIN_UNTOLD, Door
from airflow_aiflow.hooks.host import AirflowHost
from airflow_aiflow.hooks.persons import AsksPersons
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_inbox import MemoryInbox
from tests.contract.ledger_world import FakeClock, a_question, an_effect, an_intent, start

TASK = ExecutionId("d", "r", "t")


class Operator(AsksPersons):
    """A task of ours."""

    def execute(self, context: Any) -> str:
        return "done"


class Airflow:
    """What Airflow answers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.kept: tuple[str, list[str]] | None = None
        self.trouble: Exception | None = None
        self.form: AirflowForm | Exception | None = None
        self.api = True

    def ask(self, ti_id: Any, **form: Any) -> tuple[str, list[str]]:
        self.asked.append(form)
        if self.trouble is not None:
            raise self.trouble
        return self.kept or (form["subject"], form["options"])

    def open(self) -> Airflow:
        if not self.api:
            raise AiflowConfigError("the connection 'aiflow_api' is not defined")
        return self

    def read(self, api: Any, execution: ExecutionId) -> AirflowForm | None:
        assert (api, execution) == (self, TASK)
        if isinstance(self.form, Exception):
            raise self.form
        return self.form

    def close(self) -> None:
        pass


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    made = Airflow()
    monkeypatch.setattr(supervisor, "is_supervised", lambda: True)
    monkeypatch.setattr(supervisor, "ask_airflow", made.ask)
    monkeypatch.setattr(upstream, "open_api", made.open)
    monkeypatch.setattr("airflow_aiflow.hooks.airflow_form.read_form", made.read)
    monkeypatch.setattr(asking, "api_is_known", lambda: made.api)
    return made


class World:
    """A ledger with one doubt, and what is asked about it."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger(FakeClock())
        self.inbox = MemoryInbox(self.ledger)
        self.taken, self.effect = start(self.ledger), an_effect()
        intent = an_intent(self.effect)
        self.ledger.intend(self.taken.lease, intent)
        assert self.ledger.doubt(self.taken.lease, intent.intent_id)
        [entry] = self.inbox.waiting()
        self.number = entry.number

    def state(self) -> EffectState:
        found = self.ledger.effect(self.effect)
        assert found is not None
        return found.state

    def form(self, *, timeout: float | None = 86_400.0) -> Form:
        marks = f"(#{self.number})"
        options: dict[str, tuple[tuple[int, str], ...]] = {
            f"It happened {marks}": ((self.number, "happened"),),
            f"It did not happen: run it {marks}": ((self.number, "did_not_happen"),),
            f"Answer one by one {marks}": (),
        }
        return Form("Did it?", "Look first.", options, ("ada",), timeout)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(aiflow.AiflowHook, "inbox", lambda self: made.inbox)
    return made


def park(world: World, *, task: Any = None, try_number: int = 1, looks: int = 0, **parts: Any) -> BaseException:
    door = Door(TASK, uuid4(), try_number, task or Operator(), looks, AirflowHost(), 30.0)
    return door.park(AttemptAsks(world.form(**parts), 30.0, f"effect 'pay' is in doubt (#{world.number})"))


def answered(world: World, beginning: str, **parts: Any) -> AirflowForm:
    [chosen] = [option for option in world.form().options if option.startswith(beginning)]
    plain: dict[str, Any] = {"subject": "Did it?", "options": tuple(world.form().options), "chosen": chosen}
    return AirflowForm(**(plain | {"by": "ada", "created_at": dt.datetime.now(dt.UTC), "from_inbox": False} | parts))


@pytest.mark.parametrize(
    ("timeout", "api", "waits"),
    [
        (86_400.0, True, LOOK_AGAIN),
        (86_400.0, False, LOOK_AGAIN_UNTOLD),
        (None, True, LOOK_AGAIN),
        (90.0, True, 90.0),
        (0.5, True, 30.0),
    ],
)
def test_a_form_that_is_shown_is_waited_in(
    airflow: Airflow, world: World, timeout: float | None, api: bool, waits: float
) -> None:
    airflow.api = api
    signal = park(world, timeout=timeout)
    assert isinstance(signal, TaskAwaitingInput)
    assert (signal.method_name, signal.timeout) == ("answered", dt.timedelta(seconds=waits))
    form = world.form()
    assert signal.kwargs == {"choices": {text: [list(word) for word in words] for text, words in form.options.items()}}
    assert airflow.asked == [
        {
            "subject": "Did it?",
            "body": f"Look first.\n\n{INBOX_LINK}",
            "options": list(form.options),
            "assigned_users": ("ada",),
        }
    ]


def test_a_form_that_shows_something_else_stays_unused(airflow: Airflow, world: World) -> None:
    for kept in (("Which colour?", ["Red (#1)"]), ("Did it?", ["It happened (#999)"])):
        airflow.kept = kept
        assert isinstance(park(world), AirflowRescheduleException)


def test_trouble_with_the_form_costs_nothing_but_the_form(
    airflow: Airflow, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    airflow.trouble = RuntimeError("422")
    with caplog.at_level(logging.WARNING, logger="airflow_aiflow.flow"):
        assert isinstance(park(world), AirflowRescheduleException)
    assert "Airflow took no form (RuntimeError: 422)" in caplog.text


def test_a_form_that_was_used_up_is_not_asked_for_again(airflow: Airflow, world: World) -> None:
    """Asked for again it would be wiped, and shown once more."""
    task = Operator()
    task.form_is_used = True
    assert isinstance(park(world, task=task), AirflowRescheduleException)
    airflow.form = answered(world, "Answer one by one")
    assert isinstance(park(world, looks=1), AirflowRescheduleException)
    assert airflow.asked == []


@pytest.mark.parametrize(("beginning", "state"), [("It happened", "succeeded"), ("It did not", "failed")])
def test_an_answer_that_was_lost_is_read_back(
    airflow: Airflow, world: World, beginning: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    airflow.form = answered(world, beginning)
    with caplog.at_level(logging.INFO, logger="airflow_aiflow.flow"):
        assert isinstance(park(world, try_number=2), AirflowRescheduleException)
    assert (world.state(), airflow.asked) == (state, [])
    assert f"#{world.number} is answered by ada" in caplog.text
    assert "Airflow did not pass on" in caplog.text


def test_who_was_first_is_said_where_the_lost_answer_comes_second(
    airflow: Airflow, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.inbox.resolve(world.number, "happened", by="bob").counts
    airflow.form = answered(world, "It did not")
    with caplog.at_level(logging.INFO, logger="airflow_aiflow.flow"):
        park(world, try_number=2)
    assert world.state() is EffectState.SUCCEEDED
    assert f"the answer of ada to #{world.number} does not count" in caplog.text
    assert "was answered by bob" in caplog.text


def test_an_answer_to_what_was_asked_before_a_clear_is_that_questions(airflow: Airflow, world: World) -> None:
    taken = start(world.ledger)
    earlier = world.ledger.ask(taken.lease, a_question())
    airflow.form = answered(world, "It happened", chosen=f"Approve (#{earlier.number})")
    for _ in range(2):
        assert isinstance(park(world, try_number=2), AirflowRescheduleException)
    found = world.inbox.question(earlier.number)
    assert found is not None
    assert found.answer is not None
    assert (found.answer.option, found.answer.by) == ("Approve", "ada")
    assert (world.state(), airflow.asked) == (EffectState.IN_DOUBT, [])


@pytest.mark.parametrize(("option", "state"), [("It happened", "succeeded"), ("Approve", "in_doubt")])
def test_an_answer_to_a_doubt_counts_whatever_else_is_asked_now(
    airflow: Airflow, world: World, option: str, state: str
) -> None:
    chosen = f"{option} (#{world.number})"
    airflow.form = answered(world, "It happened", chosen=chosen)
    both = ((world.number, "happened"), (999, "happened"))
    choices: dict[str, tuple[tuple[int, str], ...]] = {f"All happened (#{world.number}, #999)": both}
    door = Door(TASK, uuid4(), 2, Operator(), 0, AirflowHost(), 30.0)
    signal = door.park(AttemptAsks(Form("Did these 2 happen?", "", choices), 30.0, "2 effects are in doubt"))
    assert isinstance(signal, AirflowRescheduleException)
    assert (world.state(), airflow.asked) == (state, [])


def test_our_own_response_is_no_answer(airflow: Airflow, world: World) -> None:
    airflow.form = answered(world, "It happened", from_inbox=True)
    assert isinstance(park(world, try_number=2), AirflowRescheduleException)
    assert world.state() is EffectState.IN_DOUBT


def test_a_form_without_an_answer_is_used_again(airflow: Airflow, world: World) -> None:
    airflow.form = answered(world, "It happened", chosen=None)
    assert isinstance(park(world, try_number=2), TaskAwaitingInput)


def test_without_the_api_it_is_asked_again(airflow: Airflow, world: World) -> None:
    airflow.api = False
    assert isinstance(park(world, try_number=2), TaskAwaitingInput)


def test_a_form_that_can_not_be_read_is_not_wiped(airflow: Airflow, world: World) -> None:
    airflow.form = AirflowUnavailableError("no answer")
    assert isinstance(park(world, try_number=2), AirflowRescheduleException)
    assert airflow.asked == []
    assert isinstance(park(world), TaskAwaitingInput), "in a first try no form can have been there"


@pytest.mark.parametrize("extra", [{}, {IN_INBOX: False}])
def test_a_response_brings_its_word_into_the_inbox_before_the_body_runs(
    airflow: Airflow, world: World, extra: dict[str, Any]
) -> None:
    signal = park(world)
    assert isinstance(signal, TaskAwaitingInput)
    task = Operator()
    states: list[EffectState] = []
    task.execute = lambda context: states.append(world.state())  # type: ignore[method-assign,assignment,return-value]
    event = {
        "chosen_options": [f"It happened (#{world.number})"],
        "params_input": extra,
        "responded_by_user": {"id": "4", "name": "Ada"},
        "timedout": False,
    }
    task.answered({}, event=event, **(signal.kwargs or {}))
    assert states == [EffectState.SUCCEEDED]
    [intent] = world.inbox.intents(world.number)
    assert (intent.decided_by, intent.note) == ("Ada (4)", "by Airflow's form")
    assert not task.form_is_used


@pytest.mark.parametrize("user", [{"id": "ada", "name": "Ada L."}, {"id": "eve", "name": "ada"}])
def test_a_forms_answer_counts_by_the_id_of_who_gave_it(
    airflow: Airflow, world: World, monkeypatch: pytest.MonkeyPatch, user: dict[str, str]
) -> None:
    asked = world.ledger.ask(world.taken.lease, a_question(assigned_users=("ada",)))
    choices = {f"Approve (#{asked.number})": [[asked.number, "Approve"]]}
    asking.receive({"chosen_options": [*choices], "responded_by_user": user}, choices)
    found = world.inbox.question(asked.number)
    assert found is not None
    assert (found.answer is not None) == (user["id"] == "ada")
