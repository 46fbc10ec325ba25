"""The rows of steps keep the beginning of their arguments; those of a map's quick items keep nothing."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.record import Batch, StepRecord
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.durable.step_arguments import names_of, unpack
from airflow_aiflow.runtime import argument_record
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.testing.task import DurableTask


def size(text: str, factor: int = 2) -> int:
    return len(text) * factor


def rows(task: DurableTask) -> list[StepRecord]:
    """Read the rows of the current generation, whole."""
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    lease = Lease(standing.execution_pk, standing.fence)
    steps = tuple(task.ledger.recorded(lease, standing.generation).steps)
    assert all(step.arguments is None for step in steps), "a replay reads none"
    found = task.ledger.record(lease, standing.generation, Batch(steps))
    return [step for step in found if step is not None]


def values(step: StepRecord) -> dict[str, Any]:
    assert step.arguments is not None
    return {each.name: each.value for each in unpack(step.arguments) if each.kept}


def test_a_step_keeps_its_arguments() -> None:
    task = DurableTask()
    task.run(lambda f: f.step("size", size, "abc"))
    [step] = rows(task)
    assert values(step) == {"version": None, "text": "abc", "factor": 2}


def test_a_model_call_keeps_its_prompt_and_model() -> None:
    task = DurableTask()
    task.run(lambda f: f.llm("ask", "What is it?", model_id="openai:gpt-5", model_settings={"max_tokens": 5}))
    [step] = rows(task)
    found = values(step)
    assert found["prompt"] == "What is it?"
    assert found["model"] == "openai:gpt-5"
    assert found["settings"] == {"max_tokens": 5}, "a number is no secret, whatever it is called"


def test_a_secret_is_masked_before_it_is_stored() -> None:
    task = DurableTask(secrets=("hunter2",))
    task.run(lambda f: f.step("size", size, "it is hunter2"))
    [step] = rows(task)
    assert values(step)["text"] == "***"
    assert step.arguments is not None
    assert b"hunter2" not in step.arguments


def test_where_payloads_are_encrypted_so_are_arguments() -> None:
    settings = FlowSettings(payload_keys=(Fernet.generate_key(),))
    task = DurableTask(settings=settings)
    task.run(lambda f: f.step("size", size, "abc"))
    [step] = rows(task)
    assert step.arguments is not None
    assert b"abc" not in step.arguments
    assert names_of(step.arguments) == ("version", "text", "factor")
    cipher = PayloadCipher(settings.payload_keys)
    assert [each.value for each in unpack(step.arguments, lambda data: cipher.open(data, "it"))] == [None, "abc", 2]


def test_switched_off_nothing_is_kept() -> None:
    task = DurableTask(settings=FlowSettings(record_arguments=False))
    task.run(lambda f: f.step("size", size, "abc"))
    [step] = rows(task)
    assert step.arguments is None


def test_of_quick_items_the_first_one_alone_keeps_arguments() -> None:
    task = DurableTask()
    task.run(lambda f: f.map("sizes", size, ["a", "bb", "ccc"], 3, max_workers=1))
    kept = [step for step in rows(task) if step.arguments is not None]
    assert [values(step) for step in kept] == [{"version": None, "text": "a", "factor": 3}]


def test_a_slow_item_keeps_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument_record, "QUICK_MS", 0.0)
    task = DurableTask()
    task.run(lambda f: f.map("sizes", size, ["a", "bb", "ccc"], 3, max_workers=1))
    found = sorted((values(step) for step in rows(task)), key=len)
    assert found == [{"text": "bb"}, {"text": "ccc"}, {"version": None, "text": "a", "factor": 3}]


def test_a_reused_result_keeps_the_arguments_of_this_call() -> None:
    first = DurableTask(run_id="one")
    first.run(lambda f: f.step("size", size, "abc", reuse=3600))
    second = DurableTask(run_id="two", ledger=first.ledger, store=first.store, clock=first.clock)
    second.run(lambda f: f.step("size", size, "abc", reuse=3600))
    assert [values(step)["text"] for step in rows(second)] == ["abc"]
