"""Events of submissions on a real server: without a gap or a repeat, over cuts of the connection and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import uvicorn

from airflow_aiflow.client import AiflowClient, Event, SubmissionFailedError, SubmitError
from airflow_aiflow.durable.event_cursor import Cursor
from airflow_aiflow.durable.submission import Submission
from airflow_aiflow.durable.submitting import Standing
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask, ScriptedModels
from tests.integration.api.conftest import BODY, URL, World

PATIENCE = 30.0


class Server:
    """Run the app on a port that it keeps over restarts."""

    def __init__(self, world: World) -> None:
        self.world, self.port = world, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        config = uvicorn.Config(
            self.world.server, host="127.0.0.1", port=self.port, log_level="error", timeout_graceful_shutdown=0
        )
        self.program = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.program.run, daemon=True)
        self.thread.start()
        until(lambda: self.program.started)

    def stop(self) -> None:
        self.program.force_exit = True
        self.program.should_exit = True
        self.thread.join(PATIENCE)


def until(holds: Any) -> None:
    never, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        never.wait(0.01)


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    made = Server(world)
    yield made
    made.stop()


@pytest.fixture
def client(server: Server) -> Iterator[AiflowClient]:
    with AiflowClient(server.url, token="any") as made:
        yield made


@pytest.fixture
def ledger(world: World) -> Iterator[PostgresLedger]:
    made = PostgresLedger.connect(world.dsn, tells=True)
    yield made
    made.close()


def says(world: World, one: dict[str, Any], state: str) -> None:
    """Let Airflow say so; the run is made once the client has its answer."""
    until(lambda: one["run_id"] in world.runs.runs)
    world.runs.runs[one["run_id"]].state = state


def task(ledger: PostgresLedger, one: dict[str, Any], task_id: str = "run") -> DurableTask:
    return DurableTask(
        ledger=ledger, clock=SystemClock(), dag_id=one["pipeline"], run_id=one["run_id"], task_id=task_id
    )


def emits(count: int, first: int = 0) -> Any:
    def body(flow: Flow) -> str:
        for number in range(first, first + count):
            flow.emit("tick", number=number)
        return "done"

    return body


def ticks(events: list[Event]) -> list[int]:
    return [event.data["data"]["number"] for event in events if event.data.get("kind") == "tick"]


def test_it_is_followed_to_its_end(world: World, client: AiflowClient, ledger: PostgresLedger) -> None:
    one = client.submit("answer", {"question": "why?"})
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(lambda: list(client.stream(one["submission_id"])))
        says(world, one, "running")
        task(ledger, one).run(emits(50))
        says(world, one, "success")
        events = followed.result(PATIENCE)
    assert ticks(events) == list(range(50))
    assert [event.data["state"] for event in events if event.name == "state"][-1] == "succeeded"
    told = [event for event in events if event.name == "event"]
    assert {event.data["attempt"] for event in told} == {1}
    assert {event.data["submission_id"] for event in told} == {one["submission_id"]}


def test_a_client_goes_on_behind_any_event(world: World, client: AiflowClient, ledger: PostgresLedger) -> None:
    one = client.submit("answer", {"question": "why?"})
    task(ledger, one).run(emits(20))
    says(world, one, "success")
    events = [event for event in client.stream(one["submission_id"]) if event.name == "event"]
    for place, event in enumerate(events):
        rest = [each for each in client.stream(one["submission_id"], after=event.cursor) if each.name == "event"]
        assert rest == events[place + 1 :]


def test_a_stream_outlives_restarts_of_the_server(
    world: World, server: Server, client: AiflowClient, ledger: PostgresLedger
) -> None:
    one = client.submit("answer", {"question": "why?"})
    seen: list[Event] = []

    def follow() -> None:
        seen.extend(client.stream(one["submission_id"]))

    def body(flow: Flow) -> str:
        for number in range(30):
            flow.emit("tick", number=number)
            if number in (10, 20):
                server.stop()
                flow.emit("tick", number=number + 100)
                server.start()
        return "done"

    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follow)
        task(ledger, one).run(body)
        says(world, one, "success")
        followed.result(PATIENCE)
    assert ticks(seen) == [*range(11), 110, *range(11, 21), 120, *range(21, 30)]


def test_many_are_followed_on_one_connection(world: World, server: Server, ledger: PostgresLedger) -> None:
    with AiflowClient(server.url, token="any") as client:
        many = [client.submit("answer", {"question": str(number)}) for number in range(3)]
    for place, one in enumerate(many):
        task(ledger, one).run(emits(5, 10 * place))
        says(world, one, "success")
    ids = [("submission_id", one["submission_id"]) for one in many]
    with httpx.stream("GET", f"{server.url}/aiflow/api/v1/events", params=ids, timeout=PATIENCE) as answer:
        text = "".join(answer.iter_text())
    for place, one in enumerate(many):
        mine = [line for line in text.splitlines() if one["submission_id"] in line and '"tick"' in line]
        assert [f'"number": {10 * place + number}' in line for number, line in enumerate(mine)] == [True] * 5


def test_events_of_mapped_tasks_that_write_at_once_come_without_a_hole(
    world: World, client: AiflowClient, ledger: PostgresLedger
) -> None:
    one = client.submit("answer", {"question": "why?"})
    with ThreadPoolExecutor(5) as pool:
        followed = pool.submit(lambda: list(client.stream(one["submission_id"])))
        tasks = [task(ledger, one, f"run{number}") for number in range(4)]
        for done in [pool.submit(each.run, emits(100)) for each in tasks]:
            done.result(PATIENCE)
        says(world, one, "success")
        events = followed.result(PATIENCE)
    for number in range(4):
        mine = [event for event in events if event.data.get("task_id") == f"run{number}"]
        assert ticks(mine) == list(range(100))


def test_a_second_attempts_events_bear_its_number(world: World, client: AiflowClient, ledger: PostgresLedger) -> None:
    one = client.submit("answer", {"question": "why?"})
    durable = task(ledger, one)

    def fails(flow: Flow) -> None:
        flow.emit("tick", number=1)
        raise ValueError("the author's")

    with pytest.raises(ValueError, match="author"):
        durable.run(fails)
    durable.run(emits(1, 2))
    says(world, one, "success")
    found = [
        (event.data["attempt"], event.data["data"]["number"])
        for event in client.stream(one["submission_id"])
        if event.data.get("kind") == "tick"
    ]
    assert found == [(1, 1), (2, 2)]


def test_who_may_not_see_it_gets_no_stream(world: World, client: AiflowClient) -> None:
    one = client.submit("answer", {"question": "why?"})
    world.user = type(world.user)("bob")
    with pytest.raises(SubmitError, match="404"):
        list(client.stream(one["submission_id"]))


@pytest.mark.parametrize("after", ["x", "1.2", "1.2.3.4", "1.2.3-", "1.-2.3", "1.2." + "z" * 13, "1.2.3\n"])
def test_a_cursor_of_somebody_elses_is_refused(world: World, after: str) -> None:
    own = world.client.post(URL, json=BODY).json()["links"]["self"]
    assert world.client.get(f"{own}/events", params={"after": after}).status_code == 422


def test_a_cursor_is_read_as_it_was_written() -> None:
    cursor = Cursor({(1, 1): 3, (12345678901, 7): 0, (12345678901, 8): 99})
    assert Cursor.read(str(cursor)) == cursor
    assert Cursor.read("") == Cursor()


def test_submit_and_wait_gives_the_result_or_says_why_not(
    world: World, client: AiflowClient, ledger: PostgresLedger
) -> None:
    one = client.submit("answer", {"question": "why?"})
    world.runs.results[one["run_id"]] = ["because"]
    with pytest.raises(TimeoutError):
        client.wait(one["submission_id"], timeout=0.01)
    says(world, one, "success")
    assert client.submit_and_wait("answer", {"question": "why?"}) == ["because"]
    other = client.submit("answer", {"question": "who?"})
    says(world, other, "failed")
    with pytest.raises(SubmissionFailedError, match="failed"):
        client.submit_and_wait("answer", {"question": "who?"})


def test_a_busy_stream_does_not_look_at_states_for_each_event(
    world: World, client: AiflowClient, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    standing = world.service.standing

    def counted(one: Submission) -> Standing:
        looks.append(one.run_id)
        return standing(one)

    monkeypatch.setattr(world.service, "standing", counted)
    one = client.submit("answer", {"question": "why?"})
    seen: list[Event] = []

    def follow() -> None:
        for event in client.stream(one["submission_id"]):
            seen.append(event)

    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follow)
        says(world, one, "running")
        until(lambda: bool(looks))
        for number in range(12):
            task(ledger, one, f"run{number}").run(emits(1, number))
            until(lambda number=number: number in ticks(list(seen)))  # so that each comes by itself
        says(world, one, "success")
        followed.result(PATIENCE)
    assert ticks(seen) == list(range(12))
    assert len(looks) <= 6  # at the start, and where Airflow's word changed


def test_pieces_of_an_answer_are_seen_and_gone_once_it_is_recorded(
    world: World, client: AiflowClient, ledger: PostgresLedger
) -> None:
    one = client.submit("answer", {"question": "why?"})
    until(lambda: one["run_id"] in world.runs.runs)
    seen: list[Event] = []

    def answer(request: LlmRequest) -> str:
        assert request.on_text is not None
        request.on_text("It is ")
        until(lambda: "llm.delta" in kinds(list(seen)))  # before the record there is something to see
        request.on_text("due.")
        return "It is due."

    asking = task(ledger, one)
    asking.models = ScriptedModels(answer)

    def follow() -> None:
        for event in client.stream(one["submission_id"]):
            seen.append(event)

    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follow)
        asking.run(lambda flow: flow.llm("ask", "why?", stream=True))
        says(world, one, "success")
        followed.result(PATIENCE)
    assert "llm.done" in kinds(seen)
    late = kinds(list(client.stream(one["submission_id"])))
    assert "llm.delta" not in late
    assert "llm.done" in late


def kinds(events: list[Event]) -> list[str]:
    return [event.data["kind"] for event in events if event.name == "event"]
