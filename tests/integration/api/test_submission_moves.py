"""Cancel, pause, resume, retry: what each does in each state, again, and across a server that dies in between."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from airflow_aiflow.durable import submitting
from airflow_aiflow.durable.callback import CallbackRules
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.pace import Pace
from airflow_aiflow.durable.submission import SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService
from airflow_aiflow.exceptions import AttemptCancelled, AttemptParked, SubmissionRefusedError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.integration.api.conftest import BODY, URL, World

pytestmark = pytest.mark.timeout(120)

UNDONE: list[str] = []


def pay(name: str) -> str:
    return name


def give_back(intent: Any, _result: Any) -> None:
    UNDONE.append(intent.key)


class Task:
    """A durable task of a submission's run, on the real ledger."""

    def __init__(self, world: World, view: dict[str, Any]) -> None:
        self.ledger = PostgresLedger.connect(world.dsn)
        self.task = DurableTask(
            dag_id="answer", run_id=view["run_id"], task_id="work", ledger=self.ledger, compensate_on_failure=True
        )
        world.runs.runs[view["run_id"]].state = "running"
        UNDONE.clear()

    def run(self, body: Any) -> Any:
        try:
            return self.task.run(body)
        finally:
            self.task.same_again()

    @property
    def state(self) -> ExecutionState:
        found = self.ledger.standing(self.task.execution)
        assert found is not None
        return found.state


@pytest.fixture
def submitted(world: World) -> dict[str, Any]:
    view: dict[str, Any] = world.submit().json()
    return view


def ask(world: World, view: dict[str, Any], word: str) -> Any:
    return world.client.post(f"{view['links']['self']}:{word}")


def state(world: World, view: dict[str, Any]) -> str:
    return str(world.client.get(view["links"]["self"]).json()["state"])


#: What is answered to each word in each state; a paused one has an attempt that parked.
LEGAL = {
    "cancel": {"queued": 200, "running": 200, "paused": 200, "succeeded": 409, "failed": 409, "cancelled": 200},
    "pause": {"queued": 200, "running": 200, "paused": 200, "succeeded": 409, "failed": 409, "cancelled": 409},
    "resume": {"queued": 200, "running": 200, "paused": 200, "succeeded": 409, "failed": 409, "cancelled": 409},
    "retry": {"queued": 409, "running": 409, "paused": 409, "succeeded": 200, "failed": 200, "cancelled": 200},
}


def bring_to(world: World, view: dict[str, Any], wanted: str) -> None:
    run = world.runs.runs[view["run_id"]]
    if wanted == "paused":
        run.state = "running"
        ask(world, view, "pause")
    elif wanted == "cancelled":
        ask(world, view, "cancel")
    else:
        run.state = {"succeeded": "success"}.get(wanted, wanted)
    assert state(world, view) == wanted


@pytest.mark.parametrize("before", list(SubmissionState))
@pytest.mark.parametrize("word", sorted(LEGAL))
def test_each_word_in_each_state_and_again(
    world: World, submitted: dict[str, Any], word: str, before: SubmissionState
) -> None:
    bring_to(world, submitted, before.value)
    first = ask(world, submitted, word)
    assert first.status_code == LEGAL[word][before.value], first.text
    second = ask(world, submitted, word)
    if first.status_code == 200:
        assert (second.status_code, second.json()["state"]) == (200, first.json()["state"])
        assert second.json() == first.json()
    else:
        assert second.status_code == 409
        assert second.json()["state"] == before.value
        assert state(world, submitted) == before.value


def test_a_paused_one_starts_nothing_more_and_goes_on_where_it_was(world: World, submitted: dict[str, Any]) -> None:
    task = Task(world, submitted)
    ran: list[str] = []
    paused: list[bool] = []

    def body(flow: Flow) -> str:
        flow.step("first", ran.append, "first", cache_key=1)
        if not paused:
            paused.append(True)
            assert ask(world, submitted, "pause").json()["state"] == "running", "it comes to the end of its step"
            flow._session.heartbeat.beat()
        flow.step("second", ran.append, "second", cache_key=2)
        return "done"

    with pytest.raises(AttemptParked, match="held"):
        task.run(body)
    assert (ran, task.state) == (["first"], ExecutionState.PAUSED)
    shown = world.client.get(submitted["links"]["self"]).json()
    assert (shown["state"], shown["pause_reason"], shown["pausing"]) == (
        "paused",
        "the run is held by a person",
        True,
    )
    assert world.client.get(URL).json()["submissions"][0]["state"] == "paused"
    with pytest.raises(AttemptParked):
        task.run(body)
    assert ran == ["first"]
    after = ask(world, submitted, "resume").json()
    assert (after["state"], after["pausing"]) == ("paused", False), "it is called again"
    assert world.runs.released == [[("work", -1)]]
    assert not world.runs.runs[submitted["run_id"]].held
    assert task.run(body) == "done"
    assert ran == ["first", "second"]


def test_a_cancelled_one_ends_between_steps_and_takes_back_what_it_did(world: World, submitted: dict[str, Any]) -> None:
    task = Task(world, submitted)

    def body(flow: Flow) -> str:
        for key in ("a", "b"):
            flow.effect("pay", pay, key, key=key, compensate=give_back)
        shown = ask(world, submitted, "cancel").json()
        assert (shown["state"], shown["cancelling"]) == ("running", True)
        assert ask(world, submitted, "pause").status_code == 409
        flow._session.heartbeat.beat()
        return flow.step("more", pay, "more")

    with pytest.raises(AttemptCancelled):
        task.run(body)
    assert (UNDONE, task.state) == (["b", "a"], ExecutionState.CANCELLED)
    assert world.runs.kept[0] == [("work", -1)]
    assert world.runs.runs[submitted["run_id"]].state == "running"
    shown = world.client.get(submitted["links"]["self"]).json()
    assert (shown["state"], shown["cancelling"]) == ("cancelled", False)
    assert world.runs.runs[submitted["run_id"]].state == "failed"
    assert world.runs.kept[-1] == []


def test_one_that_is_paused_and_cancelled_comes_back_to_take_back_what_it_did(
    world: World, submitted: dict[str, Any]
) -> None:
    task = Task(world, submitted)

    def body(flow: Flow) -> str:
        flow.effect("pay", pay, "a", key="a", compensate=give_back)
        ask(world, submitted, "pause")
        flow._session.heartbeat.beat()
        return flow.step("more", pay, "more")

    with pytest.raises(AttemptParked):
        task.run(body)
    assert ask(world, submitted, "cancel").json()["state"] == "running"
    assert world.runs.kept[-1] == [("work", -1)]
    assert not world.runs.runs[submitted["run_id"]].held
    with pytest.raises(AttemptCancelled):
        task.run(body)
    assert UNDONE == ["a"]
    assert state(world, submitted) == "cancelled"


def test_one_that_waits_for_its_next_try_comes_back_to_take_back_what_it_did(
    world: World, submitted: dict[str, Any]
) -> None:
    task = Task(world, submitted)

    def body(flow: Flow) -> None:
        flow.effect("pay", pay, "a", key="a", compensate=give_back)
        raise ValueError("the author's")

    with pytest.raises(ValueError, match="author"):
        task.task.run(body)
    assert ask(world, submitted, "cancel").json()["state"] == "running"
    assert world.runs.kept[-1] == [("work", -1)]
    with pytest.raises(AttemptCancelled):
        task.task.run(body)
    assert UNDONE == ["a"]
    assert state(world, submitted) == "cancelled"


def test_one_that_does_not_react_is_ended(world: World, submitted: dict[str, Any]) -> None:
    task = Task(world, submitted)

    def body(flow: Flow) -> str:
        assert ask(world, submitted, "cancel").json()["state"] == "running"
        world.sql("update aiflow.submission set cancel_asked_at = cancel_asked_at - interval '121 seconds'")
        assert state(world, submitted) == "cancelled"
        return "too late"

    task.run(body)
    assert world.runs.runs[submitted["run_id"]].state == "failed"


def test_a_server_that_dies_between_the_wish_and_the_deed_leaves_it_to_the_next_one(
    world: World, submitted: dict[str, Any]
) -> None:
    run = world.runs.runs[submitted["run_id"]]
    run.state = "running"
    one = UUID(submitted["submission_id"])
    world.submissions.ask(one, hold=True)
    assert state(world, submitted) == "paused"
    assert run.held
    world.submissions.ask(one, hold=False)
    assert state(world, submitted) == "running"
    assert not run.held
    world.submissions.ask(one, cancel=True)
    assert world.service.press_on() == 1  # nobody looks
    assert run.state == "failed"
    found = world.submissions.get(one)
    assert found is not None
    assert found.state is SubmissionState.CANCELLED
    assert world.service.press_on() == 0


def test_one_whose_run_is_not_made_waits_and_is_made_when_it_is_let_go(world: World) -> None:
    world.runs.away = True
    view = world.submit().json()
    paused = ask(world, view, "pause").json()
    assert (paused["state"], paused["pause_reason"]) == ("queued", "the run is held by a person")
    world.runs.away = False
    assert world.service.heal(older_than=0) == 0
    assert world.runs.runs == {}
    assert ask(world, view, "resume").json()["state"] == "queued"
    assert list(world.runs.runs) == [view["run_id"]]


def test_one_that_is_paused_while_its_run_is_made_is_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    make = world.runs.make

    def paused_before(submission: Any) -> None:
        world.submissions.ask(submission.submission_id, hold=True)
        make(submission)

    monkeypatch.setattr(world.runs, "make", paused_before)
    view = world.submit().json()
    assert world.runs.runs[view["run_id"]].held


def test_a_run_that_a_killed_maker_made_for_a_cancelled_row_is_ended_by_the_next_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = world.runs.make

    def cancelled_before(submission: Any) -> None:
        ask(world, view_of(submission), "cancel")
        make(submission)

    def view_of(submission: Any) -> dict[str, Any]:
        return {"links": {"self": f"{URL}/{submission.submission_id}"}}

    def killed(submission_id: UUID) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(world.submissions, "made", killed)
        patch.setattr(world.runs, "make", cancelled_before)
        view = world.submit().json()
    world.runs.runs[view["run_id"]].state = "running"
    world.service.heal(older_than=0)
    assert world.runs.runs[view["run_id"]].state == "failed"
    world.runs.runs[view["run_id"]].state = "running"  # a person brought it back in Airflow
    world.service.heal(older_than=0)
    assert world.runs.runs[view["run_id"]].state == "running", "it is looked at once"


def test_a_row_that_can_not_be_made_does_not_stand_before_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.runs.away = True
    bad = world.submit(priority=5).json()
    good = world.submit(idempotency_key="k2").json()
    world.runs.away = False
    make = world.runs.make

    def one_is_bad(submission: Any) -> None:
        if submission.run_id == bad["run_id"]:
            raise ConnectionError("a row that Airflow chokes on")
        make(submission)

    monkeypatch.setattr(world.runs, "make", one_is_bad)
    monkeypatch.setattr("airflow_aiflow.durable.submitting.HEALED", 1)
    world.service.heal(older_than=0)
    assert world.runs.runs == {}
    world.service.heal(older_than=0)
    assert list(world.runs.runs) == [good["run_id"]]


def test_a_list_asks_airflow_and_the_ledger_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    views = [world.submit(idempotency_key=f"k{number}").json() for number in range(5)]
    for view, word in zip(views, ("queued", "running", "success", "failed", "running"), strict=True):
        world.runs.runs[view["run_id"]].state = word
    del world.runs.runs[views[4]["run_id"]]
    asked: list[Any] = []
    ledger = world.submissions._ask

    def counted(*what: Any) -> Any:
        asked.append(what)
        return ledger(*what)

    monkeypatch.setattr(world.submissions, "_ask", counted)
    monkeypatch.setattr(world.reader, "executions", None)
    world.runs.asked = 0
    shown = {each["submission_id"]: each for each in world.client.get(URL).json()["submissions"]}
    states = [shown[view["submission_id"]]["state"] for view in views]
    assert states == ["queued", "running", "succeeded", "failed", "failed"]
    assert shown[views[2]["submission_id"]]["finished_at"] is not None
    assert (world.runs.asked, len(asked)) == (1, 2), "one page and one move, however many there are"


def test_a_user_hands_in_at_a_pace_over_all_servers(world: World) -> None:
    servers = [
        SubmissionService(world.submissions, world.reader, world.runs, window_days=30, pace=Pace(3)) for _ in range(2)
    ]

    def submit(key: str, server: int) -> Any:
        world.service = servers[server]
        return world.submit(idempotency_key=key)

    assert [submit(f"k{n}", n % 2).status_code for n in range(4)] == [202, 202, 202, 429]
    refused = submit("k4", 0)
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert 15 <= int(refused.headers["Retry-After"]) <= 20
    assert submit("k1", 1).status_code == 200, "a repeat finds its task"
    world.user = type(world.user)("ann2")
    assert BODY["pipeline"] == "answer"
    world.sql("update aiflow.submit_pace set free_at = free_at - interval '20 seconds'")
    world.user = type(world.user)("ann")
    assert [submit("k5", 0).status_code, submit("k6", 1).status_code] == [202, 429]


def test_callbacks_are_off_until_they_are_configured(world: World) -> None:
    refused = world.submit(callback_url="https://hooks.example.com/done")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/callback_url")
    with pytest.raises(SubmissionRefusedError, match="off"):
        raise SubmissionRefusedError(refused.json()["detail"])


def test_an_end_is_noticed_behind_more_open_ones_than_a_round_looks_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = CallbackRules(("hooks.example.com",), b"a secret of more than 32 characters")
    world.service = SubmissionService(world.submissions, world.reader, world.runs, window_days=30, callbacks=rules)
    monkeypatch.setattr(submitting, "PRESSED", 5)
    views = [
        world.submit(idempotency_key=f"c{n}", callback_url="https://hooks.example.com/done").json() for n in range(20)
    ]
    last = UUID(max(view["submission_id"] for view in views))
    [run_id] = [view["run_id"] for view in views if UUID(view["submission_id"]) == last]
    for view in views:
        world.runs.runs[view["run_id"]].state = "running"
    world.runs.runs[run_id].state = "success"

    def ended() -> bool:
        found = world.submissions.get(last)
        return found is not None and found.state is SubmissionState.SUCCEEDED

    rounds = 0
    while not ended():  # by chance: after 100 rounds one in 10^12 would not be
        assert rounds < 100
        rounds += 1
        assert world.service.press_on() == 5


def test_one_that_can_not_be_brought_on_does_not_keep_others_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = world.submit().json(), world.submit(idempotency_key="k2").json()
    for view in (bad, good):
        world.runs.runs[view["run_id"]].state = "running"
        world.submissions.ask(UUID(view["submission_id"]), cancel=True)
    end = world.runs.end

    def one_is_bad(submission: Any) -> None:
        if submission.run_id == bad["run_id"]:
            raise ValueError("what Airflow chokes on")
        end(submission)

    monkeypatch.setattr(world.runs, "end", one_is_bad)
    assert world.service.press_on() == 2
    assert [world.runs.runs[view["run_id"]].state for view in (bad, good)] == ["running", "failed"]


def test_a_late_one_that_can_not_be_ended_does_not_keep_others_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.runs.away = True
    bad, good = world.submit().json(), world.submit(idempotency_key="k2").json()
    world.sql(
        "update aiflow.submission set state = 'cancelled', make_after = null,"
        " finished_at = created_at - interval '1 minute'"  # the bad one is the first
    )
    ended: list[str] = []

    def one_is_bad(submission: Any) -> None:
        if submission.run_id == bad["run_id"]:
            raise ValueError("what Airflow chokes on")
        ended.append(submission.run_id)

    monkeypatch.setattr(world.runs, "end", one_is_bad)
    world.service.heal(older_than=0)
    assert ended == [good["run_id"]]
