"""Cases from the field about model calls; streams and fallbacks through a flow; at the stand-in with its faults on."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from pydantic import BaseModel

from airflow_aiflow.exceptions import (
    AttemptParked,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
)
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.llm.retry import LONGEST_ASKED, SPREAD
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.runtime.pieces import Pieces
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock
from tests.integration.llm.conftest import Connect
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, json_reply, text_reply

PROMPT = "The tenant pays ninety euros on the first day of each month. The landlord keeps the roof in good repair."

#: Seconds that no deadline of these tests needs, on the slowest machine.
SOON = 45.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def task(caller: PydanticAICaller, connect: Connect, stand_in: ModelService, clock: ManualClock) -> DurableTask:
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    return DurableTask(models=caller, clock=clock)


def events(task: DurableTask, kind: str) -> list[dict[str, Any]]:
    assert isinstance(task.ledger, MemoryLedger)
    return [json.loads(event.data) for event in task.ledger.events(task.execution) if event.kind == kind]


@pytest.mark.parametrize(
    ("fault", "limit"), [(Fault("silent"), 1.0), (Fault("drip", seconds=1.0), 1.5)], ids=["silent", "a byte a second"]
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_c41_one_request_and_a_deadline_over_all_of_it(
    task: DurableTask, stand_in: ModelService, fault: Fault, limit: float, stream: bool
) -> None:
    stand_in.set_faults(fault)
    before, began = len(stand_in.requests()), time.monotonic()
    with pytest.raises(ModelTimeoutError, match="it may have been billed"):
        task.run(lambda flow: flow.llm("ask", PROMPT, timeout=limit, stream=stream))
    assert limit <= time.monotonic() - began < SOON
    assert len(stand_in.requests()) - before == 1


@pytest.mark.parametrize("asked", ["7", "40", "-3", None, "date"])
def test_c44_a_wait_that_is_asked_for_is_kept_inside_the_attempt(
    task: DurableTask, clock: ManualClock, stand_in: ModelService, asked: str | None
) -> None:
    least = float(asked) if asked in ("7", "40") else 0.0
    if asked == "date":
        asked, least = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True), 10.0
    stand_in.set_faults(Fault("status", first=1, status=429, retry_after=asked))
    before, began = len(stand_in.requests()), clock.monotonic()
    assert "tenant" in task.run(lambda flow: flow.llm("ask", PROMPT))
    assert len(stand_in.requests()) - before == 2
    assert clock.monotonic() - began >= max(least, 1.0)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("3600", 3600, 3600), ("999999999", LONGEST_ASKED, LONGEST_ASKED), ("date", 3000, LONGEST_ASKED)],
)
def test_c44_a_long_wait_frees_the_slot_and_an_absurd_one_is_capped(
    task: DurableTask, clock: ManualClock, stand_in: ModelService, asked: str, least: float, most: float
) -> None:
    if asked == "date":
        asked = format_datetime(datetime.now(UTC) + timedelta(days=4000), usegmt=True)
    stand_in.set_faults(Fault("status", first=1, status=429, retry_after=asked))
    before = len(stand_in.requests())
    with pytest.raises(AttemptParked) as parked:
        task.run(lambda flow: flow.llm("ask", PROMPT))
    assert least <= parked.value.delay <= most * (1 + SPREAD)
    assert len(stand_in.requests()) - before == 1
    clock.advance(parked.value.delay)
    task.same_again()
    assert "tenant" in task.run(lambda flow: flow.llm("ask", PROMPT))
    assert len(stand_in.requests()) - before == 2


def test_c44_a_storm_of_429_holds_no_slot(task: DurableTask, clock: ManualClock, stand_in: ModelService) -> None:
    stand_in.set_faults(Fault("status", status=429))
    before, absences, storm = len(stand_in.requests()), [0.0], 3600.0
    while sum(absences) < storm:
        with pytest.raises(AttemptParked) as parked:
            task.run(lambda flow: flow.llm("ask", PROMPT))
        absences.append(parked.value.delay)
        clock.advance(parked.value.delay)
        task.same_again()
    stand_in.set_faults()
    assert "tenant" in task.run(lambda flow: flow.llm("ask", PROMPT))
    assert len(absences) < 15
    assert len(stand_in.requests()) - before == 4 * (len(absences) - 1) + 1


def test_c45_what_was_spent_is_what_the_server_counted(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    connect("pydanticai_default", scripted.base_url, "openai-chat:gpt-5-mini")
    task = DurableTask(models=caller)

    def three(flow: Any) -> Any:
        for number in range(3):
            if number == 2 and flow.attempt == 1:
                raise RuntimeError("the worker is gone")
            flow.llm("ask", f"{PROMPT} Question {number}?")
        return flow.spent

    with pytest.raises(RuntimeError):
        task.run(three)
    spent = task.run(three)
    assert spent.calls == len(scripted.asked) == 3
    assert spent.tokens_in == 3 * 1000


class Verdict(BaseModel):
    risk: int


def test_c45_answers_that_fit_nothing_count_too(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    connect("pydanticai_default", scripted.base_url, "openai-chat:gpt-5-mini")
    task = DurableTask(models=caller)
    scripted.answer = lambda asked: text_reply(asked, "no verdict")
    with pytest.raises(ModelOutputError):
        task.run(lambda flow: flow.llm("judge", PROMPT, output_type=Verdict, output_retries=1))
    assert len(scripted.asked) == 2
    scripted.answer = lambda asked: text_reply(asked, '{"risk": 3}')
    spent = task.run(lambda flow: (flow.llm("judge", PROMPT, output_type=Verdict, output_retries=1), flow.spent)[1])
    assert spent.tokens_in == len(scripted.asked) * 1000 == 3000


def test_i25_a_model_that_was_retired_between_two_tries(
    caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel
) -> None:
    """What it answered is replayed; what it did not is refused at once, for waiting can't help."""
    connect("pydanticai_default", scripted.base_url, "openai-chat:gpt-5-mini")
    task = DurableTask(models=caller)

    def body(flow: Any) -> str:
        first: str = flow.llm("first", PROMPT)
        if flow.attempt == 1:
            raise RuntimeError("the worker is gone")
        return first + str(flow.llm("second", PROMPT))

    def retired(_asked: Asked) -> Reply:
        return json_reply({"error": {"message": "the model does not exist", "code": "model_not_found"}}, 404)

    with pytest.raises(RuntimeError):
        task.run(body)
    scripted.answer = retired
    with pytest.raises(ModelRequestError, match="refuses the call as it is"):
        task.run(body)
    assert len(scripted.asked) == 2
    scripted.answer = lambda asked: text_reply(asked, "fine again")
    assert task.run(body) == "finefine again"


def test_a_streamed_answer_comes_in_pieces_and_is_recorded_whole(task: DurableTask, stand_in: ModelService) -> None:
    seen: list[str] = []
    before = len(stand_in.requests())
    answer = task.run(lambda flow: flow.llm("ask", PROMPT, stream=seen.append))
    assert "".join(seen) == answer
    assert len(seen) > 1
    assert task.run(lambda flow: flow.llm("ask", PROMPT, stream=True)) == answer
    assert len(stand_in.requests()) - before == 1
    assert events(task, "llm.delta") == events(task, "llm.done") == []


@pytest.mark.parametrize("kind", ["no_end", "truncate", "cut"])
def test_a_stream_without_its_end_is_no_answer_and_begins_anew(
    task: DurableTask, stand_in: ModelService, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.set_faults(Fault(kind, first=1))
    with pytest.raises(ModelIncompleteError):
        task.run(lambda flow: flow.llm("ask", PROMPT, stream=True))
    assert events(task, "step") == []
    assert events(task, "llm.done") == []
    seen: list[str] = []
    put = Pieces.put

    def kept(pieces: Pieces, text: str) -> None:
        seen.append(text)
        put(pieces, text)

    monkeypatch.setattr(Pieces, "put", kept)
    assert task.run(lambda flow: flow.llm("ask", PROMPT, stream=True)) == "".join(seen)
    assert events(task, "llm.delta") == []  # those of the broken one went, too
    assert len(events(task, "llm.done")) == 1


def test_it_is_recorded_which_connection_answered(
    task: DurableTask, stand_in: ModelService, connect: Connect, nobody: str
) -> None:
    connect("pydanticai_default", nobody, "openai-chat:first")
    connect("second", nobody, "openai-chat:second")
    connect("third", stand_in.base_url, "openai-chat:third", password=stand_in.api_key)
    task.run(lambda flow: flow.llm("ask", PROMPT, fallback_conn_ids=["second", "third"]))
    assert events(task, "fallback") == [
        {"name": "ask", "asked": "pydanticai_default", "answered": "third", "model": "third"}
    ]
    assert "aiflow: 'ask' was answered by connection 'third'" in task.host.lines
