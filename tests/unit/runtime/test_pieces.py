"""Pieces of an answer while it is written: where they go, and that nothing of them can harm the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_aiflow.exceptions import FlowOptionError, ModelUnavailableError
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.runtime.recorder import Recorder
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ScriptedModels

TEXT = "The tenant pays ninety euros on the first day of each month."


def spoken(text: str = TEXT, size: int = 5) -> ScriptedModels:
    def answer(request: LlmRequest) -> str:
        if request.on_text is not None:
            for start in range(0, len(text), size):
                request.on_text(text[start : start + size])
        return text

    return ScriptedModels(answer)


def events(task: DurableTask, kind: str = "llm.delta") -> list[dict[str, Any]]:
    assert isinstance(task.ledger, MemoryLedger)
    return [json.loads(event.data) for event in task.ledger.events(task.execution) if event.kind == kind]


def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Keep the pieces as they are written: with the record they go."""
    found: list[dict[str, Any]] = []
    event = Recorder.event

    def kept(recorder: Recorder, kind: str, data: dict[str, Any]) -> int:
        if kind == "llm.delta":
            found.append(data)
        return event(recorder, kind, data)

    monkeypatch.setattr(Recorder, "event", kept)
    return found


def test_pieces_go_to_the_authors_function_and_the_record_is_whole() -> None:
    task, seen = DurableTask(models=spoken()), []  # type: ignore[var-annotated]
    assert task.run(lambda flow: flow.llm("ask", "p", stream=seen.append)) == TEXT
    assert "".join(seen) == TEXT
    assert len(seen) == 12
    assert task.run(lambda flow: flow.llm("ask", "p", stream=seen.append)) == TEXT
    assert len(seen) == 12, "a replay has no pieces"
    assert events(task) == []


def test_pieces_are_events_that_put_together_are_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    task, found = DurableTask(models=spoken()), written(monkeypatch)
    assert task.run(lambda flow: flow.llm("ask", "p", stream=True)) == TEXT
    assert "".join(event["text"] for event in found) == TEXT
    assert [event["at"] for event in found] == [
        sum(len(one["text"]) for one in found[:place]) for place in range(len(found))
    ]
    assert {event["name"] for event in found} == {"ask"}


def test_a_secret_that_is_cut_into_pieces_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = written(monkeypatch)
    task = DurableTask(models=spoken("it is hunter2-hunter2 and more", size=3), secrets=("hunter2-hunter2",))
    task.run(lambda flow: flow.llm("ask", "p", stream=True))
    assert "".join(event["text"] for event in found) == "it is *** and more"


def test_with_the_record_the_pieces_go_and_one_event_stands_in_their_place() -> None:
    task = DurableTask(models=spoken())
    task.run(lambda flow: flow.llm("ask", "p", stream=True))
    assert events(task) == []
    [done] = events(task, "llm.done")
    assert done["name"] == "ask"
    assert done["pieces"] >= 1
    task.run(lambda flow: flow.llm("ask", "p", stream=True))
    assert len(events(task, "llm.done")) == 1, "a replay has none"


def test_the_pieces_of_a_dead_attempt_go_with_the_record_of_a_later_one() -> None:
    broken = True

    def answer(request: LlmRequest) -> str:
        assert request.on_text is not None
        request.on_text("half an answer ")
        if broken:
            raise ValueError("cut off")
        return "whole"

    task = DurableTask(models=ScriptedModels(answer))
    with pytest.raises(ValueError, match="cut off"):
        task.run(lambda flow: flow.llm("ask", "p", stream=True))
    assert [event["text"] for event in events(task)] == ["half an answer "]
    broken = False
    assert task.run(lambda flow: flow.llm("ask", "p", stream=True)) == "whole"
    assert events(task) == []


def test_pieces_of_tries_that_failed_go_too() -> None:
    tries = 0

    def answer(request: LlmRequest) -> str:
        nonlocal tries
        tries += 1
        assert request.on_text is not None
        request.on_text(f"try {tries} ")
        if tries == 1:
            raise ModelUnavailableError("busy", retry_after=0.0)
        return "whole"

    task = DurableTask(models=ScriptedModels(answer))
    task.run(lambda flow: flow.llm("ask", "p", stream=True))
    assert events(task) == []


def test_a_function_that_fails_costs_the_pieces_and_not_the_answer() -> None:
    def broken(_piece: str) -> None:
        raise OSError("the terminal is gone")

    task = DurableTask(models=spoken())
    assert task.run(lambda flow: flow.llm("ask", "p", stream=broken)) == TEXT
    assert [line for line in task.host.warnings if "OSError: the terminal is gone" in line]


def test_streaming_is_no_part_of_the_fingerprint() -> None:
    models = spoken()
    task = DurableTask(models=models)
    task.run(lambda flow: flow.llm("ask", "p", stream=True))
    task.run(lambda flow: flow.llm("ask", "p"))
    assert len(models.requests) == 1


async def no_plain_function(_piece: str) -> None: ...


@pytest.mark.parametrize("stream", ["yes", 1, None, no_plain_function])
def test_what_is_no_way_to_stream(stream: Any) -> None:
    with pytest.raises(FlowOptionError, match="stream must be True, False or a plain function"):
        DurableTask().run(lambda flow: flow.llm("ask", "p", stream=stream))


def test_a_map_has_no_pieces() -> None:
    with pytest.raises(FlowOptionError, match=r"stream= is for flow\.llm"):
        DurableTask().run(lambda flow: flow.llm_map("ask", ["p"], stream=True))
