"""The contract of what maps know of their items: what other runs may reuse, and which items failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.items import FailedItem, Wanted, reuse_key
from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import Batch, StepRecord
from tests.contract.ledger_world import World, a_step, a_usage, an_attempt, an_execution, take

DAY = 86_400.0


def a_task() -> ExecutionId:
    """Make a task of a DAG that no other test has."""
    return replace(an_execution(), dag_id=uuid4().hex)


def page(number: int) -> StepRecord:
    return replace(a_step(f"{number}", kind="llm", usage=a_usage()), name="page")


def of(execution: ExecutionId, step: StepRecord) -> Wanted:
    key = reuse_key(execution.dag_id, execution.task_id, step.name, step.fingerprint, step.occurrence)
    return Wanted(key, step.name, step.fingerprint, step.occurrence)


def recorded(
    ledger: Ledger, execution: ExecutionId, *steps: StepRecord, at_work: bool = False
) -> tuple[StepRecord, ...]:
    """Record steps that other runs may look for."""
    taken = take(ledger, an_attempt(execution))
    written = tuple(replace(step, reuse_key=of(execution, step).reuse_key, fence=taken.lease.fence) for step in steps)
    ledger.record(taken.lease, 1, Batch(written))
    if not at_work:
        ledger.let_go(taken.lease)
    return written


def next_run(execution: ExecutionId) -> ExecutionId:
    return replace(execution, run_id=execution.run_id + " next")


def test_the_same_steps_of_another_run_are_found_in_one_query_each_at_its_place(ledger: Ledger) -> None:
    first = a_task()
    steps = recorded(ledger, first, *(page(n) for n in range(3)))
    second = take(ledger, an_attempt(next_run(first)))
    strange = Wanted(7, "page", b"\x07" * 32, 0)
    wanted = [of(first, steps[2]), strange, of(first, steps[0])]
    found = ledger.items.reusable(second.lease, wanted, age=DAY)
    assert {(each.place, each.record.step_key) for each in found} == {(0, steps[2].step_key), (2, steps[0].step_key)}
    assert {each.run_id for each in found} == {first.run_id}
    for each in found:
        assert each.record in [replace(step, reuse_key=None) for step in steps]
        assert ledger.step(Lease(each.execution_pk, 1), each.generation, each.record.step_key) == each.record


@pytest.mark.parametrize("other", ["dag_id", "task_id"])
def test_another_dag_or_task_is_not_asked(ledger: Ledger, other: str) -> None:
    first = a_task()
    [step] = recorded(ledger, first, a_step("a"))
    stranger = next_run(first)
    stranger = replace(stranger, dag_id="another") if other == "dag_id" else replace(stranger, task_id="another")
    taken = take(ledger, an_attempt(stranger))
    assert ledger.items.reusable(taken.lease, [of(first, step)], age=DAY) == []


def test_neither_the_own_run_nor_another_name_fingerprint_or_occurrence(ledger: Ledger) -> None:
    first = a_task()
    [step] = recorded(ledger, first, a_step("a"))
    wanted = of(first, step)
    own = take(ledger, an_attempt(replace(first, map_index=4)))
    assert ledger.items.reusable(own.lease, [wanted], age=DAY) == []
    second = take(ledger, an_attempt(next_run(first)))
    assert len(ledger.items.reusable(second.lease, [wanted], age=DAY)) == 1
    for changed in (
        replace(wanted, name="b"),
        replace(wanted, fingerprint=b"\x09" * 32),
        replace(wanted, occurrence=wanted.occurrence + 1),
    ):
        assert ledger.items.reusable(second.lease, [changed], age=DAY) == [], changed


def test_a_live_execution_s_records_are_left_alone_until_it_has_ended(world: World) -> None:
    ledger, first = world.ledger, a_task()
    [step] = recorded(ledger, first, a_step("a"), at_work=True)
    second = take(ledger, an_attempt(next_run(first)))
    assert ledger.items.reusable(second.lease, [of(first, step)], age=DAY) == []
    world.pass_time(60)
    assert len(ledger.items.reusable(second.lease, [of(first, step)], age=DAY)) == 1


def test_what_is_too_old_does_not_count_and_the_newest_wins(world: World) -> None:
    ledger, first = world.ledger, a_task()
    [step] = recorded(ledger, first, a_step("a"))
    world.pass_time(100)
    later = next_run(first)
    recorded(ledger, later, replace(step, result=a_step("b", result=b'"newer"').result))
    third = take(ledger, an_attempt(next_run(later)))
    [found] = ledger.items.reusable(third.lease, [of(first, step)], age=1000)
    assert found.run_id == later.run_id
    assert found.record.result.inline == b'"newer"'
    [found] = ledger.items.reusable(third.lease, [of(first, step)], age=50)
    assert found.run_id == later.run_id
    world.pass_time(60)
    assert ledger.items.reusable(third.lease, [of(first, step)], age=50) == []


def test_a_step_without_a_key_is_found_by_nobody(ledger: Ledger) -> None:
    first = a_task()
    taken = take(ledger, an_attempt(first))
    step = a_step("a", fence=taken.lease.fence)
    ledger.record(taken.lease, 1, Batch((step,)))
    ledger.let_go(taken.lease)
    second = take(ledger, an_attempt(next_run(first)))
    assert ledger.items.reusable(second.lease, [of(first, step)], age=DAY) == []


def an_item(number: int, **fields: object) -> FailedItem:
    plain: dict[str, object] = {
        "step_key": bytes([number]) * 32,
        "name": "page",
        "number": number,
        "key": None,
        "state": "dead",
        "failures": 3,
        "kills": 0,
        "error": b'{"type":"ValueError"}',
        "fence": 1,
    }
    return FailedItem(**(plain | fields))  # type: ignore[arg-type]


def test_failed_items_come_back_and_the_last_word_counts(ledger: Ledger) -> None:
    execution = an_execution()
    taken = take(ledger, an_attempt(execution))
    assert ledger.items.troubled(taken.lease, 1) == (None, [])
    at_work = an_item(2, state="at_work", failures=0, error=None, key="4711/\u00e9")
    ledger.items.fail_items(taken.lease, 1, [an_item(1), at_work])
    ledger.items.fail_items(taken.lease, 1, [an_item(1, failures=4, kills=1)])
    found = {item.number: item for item in ledger.items.troubled(taken.lease, 1)[1]}
    assert replace(found[2], at=None) == replace(at_work, fence=taken.lease.fence)
    assert (found[1].failures, found[1].kills, found[1].state, found[1].error) == (4, 1, "dead", an_item(1).error)
    assert found[1].at is not None
    assert ledger.items.troubled(taken.lease, 2)[1] == []


def test_a_superseded_attempt_s_word_does_not_undo_its_successor_s(ledger: Ledger) -> None:
    execution = an_execution()
    former = take(ledger, an_attempt(execution))
    later = take(ledger, an_attempt(execution, 2))
    ledger.items.fail_items(later.lease, 1, [an_item(1, failures=5)])
    ledger.items.fail_items(former.lease, 1, [an_item(1, failures=1)])
    ending, [item] = ledger.items.troubled(later.lease, 1)
    assert ending == "superseded"
    assert (item.failures, item.fence) == (5, later.lease.fence)


def test_dead_items_can_be_tried_once_more(ledger: Ledger) -> None:
    taken = take(ledger, an_attempt(an_execution()))
    items = [an_item(1), an_item(2, state="failed"), an_item(3, state="at_work", kills=1, error=None)]
    ledger.items.fail_items(taken.lease, 1, items)
    assert ledger.items.retry_items(taken.lease.execution_pk, 1) == 2
    assert ledger.items.retry_items(taken.lease.execution_pk, 1) == 0
    found = {item.number: (item.state, item.failures, item.kills) for item in ledger.items.troubled(taken.lease, 1)[1]}
    assert found == {1: ("retry", 0, 0), 2: ("retry", 0, 0), 3: ("at_work", 3, 1)}


def test_an_item_that_has_a_result_by_now_is_no_trouble_any_more(ledger: Ledger) -> None:
    execution = a_task()
    taken = take(ledger, an_attempt(execution))
    step = a_step("page", kind="item")
    ledger.items.fail_items(taken.lease, 1, [an_item(1), an_item(2, step_key=step.step_key, key="two")])
    [(of_it, pk, generation, item), other] = ledger.items.failed_of_run(execution.dag_id, execution.run_id)
    assert (of_it, pk, generation) == (execution, taken.lease.execution_pk, 1)
    assert (item.number, other[3].key) == (1, "two")
    ledger.record(taken.lease, 1, Batch((step,)))
    assert [item.number for item in ledger.items.troubled(taken.lease, 1)[1]] == [1]
    assert [found[3].number for found in ledger.items.failed_of_run(execution.dag_id, execution.run_id)] == [1]


def test_failed_items_are_asked_for_by_task_map_index_and_name_and_no_more_than_wanted(ledger: Ledger) -> None:
    first = a_task()
    tasks = [replace(first, task_id=task, map_index=index) for task in ("a", "b") for index in (-1, 3)]
    for one in tasks:
        taken = take(ledger, an_attempt(one))
        items = [
            an_item(n, name=name, step_key=bytes([n, place]) * 16)
            for place, name in enumerate(("read", "check"))
            for n in (0, 1)
        ]
        ledger.items.fail_items(taken.lease, 1, items)

    def found(**wanted: Any) -> list[tuple[str, int, str, int]]:
        rows = ledger.items.failed_of_run(first.dag_id, first.run_id, **wanted)
        return [(of_it.task_id, of_it.map_index, item.name, item.number) for of_it, _, _, item in rows]

    whole = found()
    assert len(whole) == 16
    choices: list[dict[str, Any]] = [
        {},
        {"task_id": "b"},
        {"map_index": -1},
        {"map_index": 0},
        {"name": "read"},
        {"task_id": "a", "map_index": 3, "name": "check"},
        {"task_id": "none"},
    ]
    for wanted in choices:
        place = {"task_id": 0, "map_index": 1, "name": 2}
        those = [one for one in whole if all(one[place[key]] == value for key, value in wanted.items())]
        assert found(**wanted) == those
        for limit in (0, 1, 3, 100):
            assert found(**wanted, limit=limit) == those[:limit]
