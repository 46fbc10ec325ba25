"""Reuse across runs: what another run paid for is taken where the author says so, and shown as what it is."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from cryptography.fernet import Fernet

from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.testing import DurableTask, ScriptedModels
from airflow_aiflow.testing.clock import ManualClock

MONTH = timedelta(days=30)


class Nights:
    """Run the same task night after night on one ledger."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.ledger = MemoryLedger(self.clock)
        self.store = MemoryArtifactStore()
        self.asked: list[str] = []
        self.models = ScriptedModels(self._answer, price=Decimal("0.01"))
        self.settings = FlowSettings(**settings)
        self.count = 0
        self.last: DurableTask | None = None

    def _answer(self, request: LlmRequest) -> str:
        self.asked.append(request.prompt)
        return f"{request.prompt} answered in {self.count}"

    def task(self, **options: Any) -> DurableTask:
        self.count += 1
        plain: dict[str, Any] = {"run_id": f"night {self.count}", "settings": self.settings}
        self.last = DurableTask(
            ledger=self.ledger, store=self.store, models=self.models, clock=self.clock, **(plain | options)
        )
        return self.last

    def run(self, body: Any, **options: Any) -> Any:
        """Run one night, and give what it made; ``asked`` holds this night's calls alone."""
        self.asked.clear()
        return self.task(**options).run(body)

    def log(self) -> list[str]:
        assert self.last is not None
        return self.last.host.lines

    def events(self, kind: str) -> list[dict[str, Any]]:
        assert self.last is not None
        return [json.loads(e.data) for e in self.ledger.events(self.last.execution) if e.kind == kind]


def ask(prompt: str, reuse: Any = MONTH) -> Any:
    return lambda f: f.llm("page", prompt, reuse=reuse)


def batch(*prompts: str, **options: Any) -> Any:
    return lambda f: f.llm_map("page", list(prompts), **({"reuse": MONTH} | options))


def test_a_call_of_another_run_is_taken_with_its_provenance() -> None:
    nights = Nights()
    assert nights.run(ask("a")) == "a answered in 1"
    spent: list[Any] = []

    def body(f: Flow) -> Any:
        answer = f.llm("page", "a", reuse=MONTH)
        spent.append(f.spent.calls)
        return answer

    assert nights.run(body) == "a answered in 1"
    assert nights.asked == []
    assert spent == [0]
    [line] = [line for line in nights.log() if "reused  " in line]
    assert "page" in line
    assert "(run night 1, 20" in line
    assert "$0.01" in line
    [step] = nights.events("step")
    assert (step["reused_from"], step["cost"]) == ("night 1", "0.01")
    assert nights.log()[-1].startswith("aiflow: done: 0 replayed, 1 reused from earlier runs, 0 ran")
    assert "saved $0.01 of 1 model call" in nights.log()[-1]


def test_nothing_is_reused_unless_it_is_asked_for() -> None:
    nights = Nights()
    nights.run(ask("a"))
    nights.run(ask("a", reuse=None))
    assert nights.asked == ["a"]
    nights.run(batch("a", reuse=None))
    assert nights.asked == ["a"]


def test_a_first_night_without_the_option_is_found_by_the_second() -> None:
    """Who sees the bill of the first night and turns it on must not pay it twice."""
    nights = Nights()
    nights.run(batch("a", "b", reuse=None))
    assert nights.run(batch("a", "b")) == ["a answered in 1", "b answered in 1"]
    assert nights.asked == []


def test_of_a_batch_only_what_changed_is_asked() -> None:
    nights = Nights()
    first = [f"item {n}" for n in range(300)]
    nights.run(batch(*first))
    assert len(nights.asked) == 300
    second = [f"{item}, changed" if n % 33 == 0 else item for n, item in enumerate(first)]
    answers = nights.run(batch(*second))
    assert sorted(nights.asked) == sorted(item for item in second if item.endswith("changed"))
    assert answers == [f"{item} answered in {2 if item.endswith('changed') else 1}" for item in second]
    items = nights.events("items")
    assert sum(each.get("reused", 0) for each in items) == 290
    assert sum(each["count"] for each in items) == 300
    assert sum(Decimal(each.get("cost", "0")) for each in items) == Decimal("2.90")
    assert {run for each in items for run in each.get("reused_from", {})} == {"night 1"}


def test_what_was_reused_is_this_run_s_own_on_a_retry() -> None:
    nights = Nights()
    nights.run(batch("a", "b"))
    task = nights.task()
    nights.asked.clear()
    with pytest.raises(ValueError, match="after"):
        task.run(lambda f: [f.llm_map("page", ["a", "b"], reuse=MONTH), int("after")])
    nights.ledger._tables.reuse.clear()  # whatever becomes of the other run
    assert task.run(batch("a", "b")) == ["a answered in 1", "b answered in 1"]
    assert nights.asked == []


def test_the_age_counts_from_the_paid_call_and_not_from_its_copies() -> None:
    nights = Nights()
    nights.run(ask("a"))
    for _ in range(3):
        nights.clock.wait(9 * 86_400)
        assert nights.run(ask("a")) == "a answered in 1"
    nights.clock.wait(9 * 86_400)
    assert nights.run(ask("a")) == "a answered in 5"
    assert nights.asked == ["a"]


def test_equal_items_have_an_answer_each() -> None:
    nights = Nights()
    nights.run(batch("a", "a"))
    nights.run(batch("a", "a", "a"))
    assert nights.asked == ["a"]


@pytest.mark.parametrize("changed", [{"dag_id": "other"}, {"task_id": "other"}])
def test_another_dag_or_task_shares_nothing(changed: dict[str, str]) -> None:
    nights = Nights()
    nights.run(ask("a"))
    nights.run(ask("a"), **changed)
    assert nights.asked == ["a"]


def test_another_model_shares_nothing() -> None:
    nights = Nights()
    nights.run(ask("a"))
    nights.run(lambda f: f.llm("page", "a", reuse=MONTH, model_id="another"))
    assert nights.asked == ["a"]


def test_a_fresh_start_asks_again() -> None:
    nights = Nights()
    nights.run(ask("a"))
    task = nights.task(on_clear="fresh")
    nights.asked.clear()
    task.run(ask("a"))
    assert nights.asked == ["a"], "fresh from its first attempt on"
    task.cleared()
    task.run(ask("a"))
    assert nights.asked == ["a", "a"]


def test_a_person_s_clear_of_what_was_seen_asks_again() -> None:
    nights = Nights()
    nights.run(ask("a"))
    nights.run(ask("a"))
    assert nights.last is not None
    nights.last.cleared()
    nights.last.run(ask("a"))
    assert nights.asked == ["a"]


def test_encrypted_answers_are_reused_and_those_whose_key_is_gone_are_not() -> None:
    key = Fernet.generate_key()
    nights = Nights(payload_keys=(key,))
    nights.run(ask("a"))
    assert nights.run(ask("a")) == "a answered in 1"
    assert nights.asked == []
    nights.settings = FlowSettings(payload_keys=(Fernet.generate_key(),))
    assert nights.run(ask("a")) == "a answered in 3"
    assert nights.asked == ["a"]
    assert any("is not reused, it runs: the record of 'page' is encrypted" in line for line in nights.log())


def test_a_record_that_was_edited_is_not_reused() -> None:
    nights = Nights(seal_key=b"k" * 32)
    nights.run(batch("a", "b"))
    [steps] = nights.ledger._tables.steps.values()
    for key, row in steps.items():
        steps[key] = tuple(b'"forged"' if part == b'"a answered in 1"' else part for part in row)
    assert nights.run(batch("a", "b")) == ["a answered in 2", "b answered in 1"]
    assert nights.asked == ["a"]
    assert any("does not carry the seal of its content" in line for line in nights.log())


def test_large_answers_come_out_of_the_artifact_store_and_a_missing_one_is_asked_for_again() -> None:
    nights = Nights(inline_limit=4)
    nights.run(batch("a", "b"))
    assert nights.run(batch("a", "b")) == ["a answered in 1", "b answered in 1"]
    assert nights.asked == []
    nights.store = MemoryArtifactStore()
    assert nights.run(batch("a", "b")) == ["a answered in 3", "b answered in 3"]


RAN: list[object] = []


def work(item: int) -> int:
    RAN.append(item)
    return item * 2


def test_steps_and_items_are_reused_by_those_who_ask_for_it() -> None:
    RAN.clear()
    nights = Nights()

    def body(f: Flow) -> Any:
        return f.step("one", work, 1, reuse=MONTH), f.map("all", work, [2, 3], reuse=MONTH), f.step("plain", work, 4)

    assert nights.run(body) == (2, [4, 6], 8)
    assert nights.run(body) == (2, [4, 6], 8)
    assert sorted(RAN, key=str) == [1, 2, 3, 4, 4]


def test_a_run_at_work_is_not_looked_into() -> None:
    nights = Nights()
    first = nights.task()

    def body(f: Flow) -> Any:
        f.llm("page", "a", reuse=MONTH)
        second = nights.task()
        return second.run(ask("a"))

    assert first.run(body) == "a answered in 2"
    assert nights.asked == ["a", "a"]
