"""Items that fail: what the map makes of them, what the ledger remembers, and those that take their process along."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.items import FailedItem
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import ItemLostError, ItemsFailedError, LedgerUnavailableError, ModelRequestError
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ScriptedModels, flow
from airflow_aiflow.testing.clock import ManualClock

RAN: list[Any] = []
BAD: set[Any] = set()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()
    BAD.clear()


def work(item: Any) -> Any:
    RAN.append(item)
    if item in BAD:
        raise ValueError(f"no {item} today")
    return item * 2


def failed(task: DurableTask) -> list[FailedItem]:
    return [item for *_, item in task.ledger.items.failed_of_run(task.execution.dag_id, task.execution.run_id)]


def test_a_skipped_item_has_no_result_and_costs_the_others_nothing() -> None:
    BAD.update({3, 7})
    task = DurableTask()
    expected = [None if n in BAD else n * 2 for n in range(10)]
    assert task.run(lambda f: f.map("work", work, range(10), on_item_error="skip", item_key=str)) == expected
    assert RAN.count(3) == RAN.count(7) == 3, "max_item_attempts"
    assert [(item.number, item.key, item.state, item.failures) for item in failed(task)] == [
        (3, "3", "dead", 3),
        (7, "7", "dead", 3),
    ]
    assert failed(task)[0].error is not None
    assert json.loads(failed(task)[0].error or b"") == {"type": "ValueError", "message": "no 3 today"}
    assert any("work: item 3 (3): ValueError: no 3 today" in line for line in task.host.warnings)
    assert any("work: 2 of 10 items failed" in line for line in task.host.warnings)


def test_a_dead_item_is_left_alone_until_somebody_wants_it_tried_again() -> None:
    BAD.add(1)
    task = DurableTask()

    def body(f: Flow) -> Any:
        return f.map("work", work, [0, 1, 2], on_item_error="skip", max_item_attempts=1)

    assert task.run(body) == [0, None, 4]
    BAD.clear()
    RAN.clear()
    task.hears = False
    assert task.run(body) == [0, None, 4]
    assert RAN == []
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    assert task.ledger.items.retry_items(standing.execution_pk, 1) == 1
    assert task.run(body) == [0, 2, 4]
    assert RAN == [1]
    assert failed(task) == []


@pytest.mark.parametrize(("share", "fails"), [(0.2, False), (0.1, True), (0.0, True), (1, False)])
def test_a_share_of_items_may_fail(share: float, fails: bool) -> None:
    BAD.update({2, 5})
    task = DurableTask()

    def body(f: Flow) -> Any:
        return f.map("work", work, iter(range(10)), on_item_error=share, max_item_attempts=1)

    if not fails:
        assert task.run(body).count(None) == 2
        return
    with pytest.raises(ItemsFailedError) as caught:
        task.run(body)
    message = str(caught.value)
    assert "2 items failed, more than on_item_error" in message
    assert "item 2: ValueError: no 2 today" in message
    assert "aiflow batch failed run" in message
    BAD.clear()
    RAN.clear()
    assert task.run(body) == [n * 2 for n in range(10)], "a try after a failure tries the failed ones again"
    assert sorted(RAN) == [2, 5]


def test_a_map_whose_length_is_known_ends_as_soon_as_too_many_have_failed() -> None:
    BAD.update(range(100))
    with flow() as f, pytest.raises(ItemsFailedError):
        f.map("work", work, list(range(100)), on_item_error=0.05, max_item_attempts=1, max_workers=1)
    assert len(RAN) < 20


def test_the_item_with_which_a_map_failed_is_listed_too() -> None:
    BAD.add(1)
    task = DurableTask()
    with pytest.raises(ValueError, match="no 1 today"):
        task.run(lambda f: f.map("work", work, [0, 1], max_workers=1))
    assert [(item.number, item.state) for item in failed(task)] == [(1, "failed")]
    BAD.clear()
    assert task.run(lambda f: f.map("work", work, [0, 1])) == [0, 2]
    assert failed(task) == []


def test_an_item_that_can_t_be_stored_or_printed_is_an_item_s_own_failure() -> None:
    class Odd:
        pass

    def odd(item: Any) -> Any:
        RAN.append(item)
        return Odd if item == 1 else item

    task = DurableTask()
    given = task.run(lambda f: f.map("odd", odd, [0, 1, Odd(), 3], on_item_error="skip"))
    assert given == [0, None, None, 3]
    assert RAN.count(1) == 1, "a further try is in vain"
    errors = {item.number: json.loads(item.error or b"{}")["type"] for item in failed(task)}
    assert errors == {1: "PayloadEncodeError", 2: "StepInputError"}


def test_a_refused_model_call_is_not_asked_again_and_the_next_prompts_are() -> None:
    def answer(request: LlmRequest) -> str:
        if request.prompt == "bad":
            raise ModelRequestError("400: the content filter says no")
        return request.prompt.upper()

    models = ScriptedModels(answer)
    with flow(models=models) as f:
        assert f.llm_map("page", ["a", "bad", "c"], on_item_error="skip") == ["A", None, "C"]
    assert len(models.requests) == 3


def test_a_lost_ledger_is_nobody_s_item() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    task = DurableTask(ledger=ledger, clock=clock, settings=FlowSettings(ledger_patience=1.0))

    def items() -> Iterator[int]:
        yield 1
        ledger.unavailable = True
        yield 2

    with pytest.raises(LedgerUnavailableError):
        task.run(lambda f: f.map("work", work, items(), on_item_error="skip", max_workers=1))
    ledger.unavailable = False
    assert failed(task) == []


def test_secrets_of_an_error_are_masked_wherever_it_is_kept() -> None:
    def leak(_item: int) -> int:
        raise ValueError("password hunter2 is wrong")

    task = DurableTask(secrets=("hunter2",))
    task.run(lambda f: f.map("leak", leak, [1], on_item_error="skip", max_item_attempts=1))
    assert b"hunter2" not in (failed(task)[0].error or b"")
    assert not any("hunter2" in line for line in task.host.lines)


# --- items that take their process along ------------------------------------------------------------------------------


class Killed(MemoryLedger):
    """A ledger of attempts that end without a word."""

    def let_go(self, lease: Lease) -> None:
        """Say nothing, as a killed process."""


def killer(item: int) -> int:
    RAN.append(item)
    if item in BAD:
        raise KeyboardInterrupt
    return item


def tries(task: DurableTask, clock: ManualClock, most: int, **options: Any) -> tuple[int, Any]:
    """Try until the task ends by itself; give how many processes were lost and what it gave."""
    for lost in range(most):
        try:
            return lost, task.run(lambda f: f.map("killer", killer, range(30), max_workers=4, **options))
        except KeyboardInterrupt:
            clock.wait(3600)
    raise AssertionError(f"{most} processes were lost")


def test_an_item_that_takes_its_process_along_is_found_and_left_out() -> None:
    BAD.add(13)
    clock = ManualClock()
    task = DurableTask(ledger=Killed(clock), clock=clock, retries=9)
    lost, given = tries(task, clock, 6, on_item_error="skip")
    assert lost == 3, "one that tells nothing, one with others beside it, one alone"
    assert given == [None if n == 13 else n for n in range(30)]
    assert RAN.count(13) == 3
    [item] = failed(task)
    assert (item.number, item.state, item.kills) == (13, "dead", 2)
    assert json.loads(item.error or b"")["type"] == "ItemLostError"


def test_a_map_that_may_not_skip_fails_with_its_name_instead_of_losing_one_more_process() -> None:
    BAD.add(13)
    clock = ManualClock()
    task = DurableTask(ledger=Killed(clock), clock=clock, retries=9)
    with pytest.raises(ItemLostError, match="item 13 of 'killer' was at work when 2 processes were lost"):
        tries(task, clock, 6)


def test_a_process_that_is_lost_once_makes_nobody_dead() -> None:
    BAD.add(13)
    clock = ManualClock()
    task = DurableTask(ledger=Killed(clock), clock=clock, retries=9)
    with pytest.raises(KeyboardInterrupt):
        task.run(lambda f: f.map("killer", killer, range(30), max_workers=4))
    clock.wait(3600)
    BAD.clear()
    assert task.run(lambda f: f.map("killer", killer, range(30), max_workers=4)) == list(range(30))
    assert failed(task) == []


# --- progress ---------------------------------------------------------------------------------------------------------


def test_a_long_map_says_how_far_it_is_and_lists_only_its_first_items() -> None:
    task = DurableTask()
    task.run(lambda f: f.map("work", work, range(1000), results="none", batch_commit=20))
    lines = [line for line in task.host.lines if line.startswith("aiflow: work: ")]
    assert 5 <= len(lines) <= 21
    assert any("of 1,000 (" in line and "items/s" in line and "left" in line for line in lines)
    assert sum(" ran  " in line for line in task.host.lines) == 50
    events = [json.loads(e.data) for e in task.ledger.events(task.execution) if e.kind == "progress"]  # type: ignore[attr-defined]
    assert [event["done"] for event in events] == sorted(event["done"] for event in events)
    assert events[-1]["total"] == 1000


def test_a_slow_generator_says_how_far_it_is_every_half_minute() -> None:
    clock = ManualClock()

    def items() -> Any:
        for n in range(40):
            clock.wait(10)
            yield n

    task = DurableTask(clock=clock)
    task.run(lambda f: f.map("work", work, items(), max_workers=1, batch_commit=1))
    lines = [line for line in task.host.lines if line.startswith("aiflow: work: ")]
    assert 2 <= len(lines) <= 14
    assert "items/min" in lines[0]
    assert "left" not in lines[0]
