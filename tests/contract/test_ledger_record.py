"""The contract of steps and events: a result counts whoever brings it, the first write wins, a repeat is once."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import Batch, EventRecord, StepRecord, Stored
from airflow_aiflow.exceptions import LedgerError
from tests.contract.ledger_world import World, a_step, a_usage, an_attempt, an_execution, start, take


def by_name(steps: object) -> dict[str, StepRecord]:
    assert isinstance(steps, list | tuple)
    return {step.name: step for step in steps}


def test_every_field_of_a_step_comes_back(ledger: Ledger) -> None:
    taken = start(ledger)
    steps = (
        a_step("plain", unit="items/4711/é", occurrence=3, fence=7, duration_ms=0.1),
        a_step("llm", kind="llm", usage=a_usage(cost=Decimal("0.0040"))),
        a_step("no price", kind="llm", usage=a_usage(model=None, response_id=None, cost=None)),
        a_step("item", kind="item", result=Stored(sha256=b"\x00" * 31 + b"\xff")),
        a_step("big tokens", usage=a_usage(tokens_in=2**40, cost=Decimal("1234567890.123456789012345678"))),
        a_step("empty", result=b"", seal=b"", prints=b""),
        a_step("prints", prints=bytes(range(64)), usage=a_usage()),
        a_step("bytes", result=bytes(range(256)) * 64),
    )
    assert ledger.record(taken.lease, 1, Batch(steps)) == [None] * len(steps)
    back = by_name(ledger.recorded(taken.lease, 1).steps)
    for step in steps:
        for field in fields(StepRecord):
            assert getattr(back[step.name], field.name) == getattr(step, field.name), (step.name, field.name)
        assert back[step.name].ended_at.tzinfo is UTC
        assert type(back[step.name].result.inline) in (bytes, type(None))


@pytest.mark.parametrize("events", [0, 1])
def test_what_is_kept_of_arguments_comes_back_to_who_asks_and_to_no_replay(ledger: Ledger, events: int) -> None:
    """Each way of writing steps keeps them: one step with its event, and many."""
    taken = start(ledger)
    step = a_step("arguments", arguments=b"4:text5:" + bytes(range(256)))
    ledger.record(taken.lease, 1, Batch((step,), tuple(EventRecord("step", b"{}") for _ in range(events))))
    none = tuple(a_step(f"none {place}") for place in range(3))
    ledger.record(taken.lease, 1, Batch((*none, a_step("late", arguments=b"0:"))))
    back = by_name(ledger.recorded(taken.lease, 1).steps)
    assert {each.arguments for each in back.values()} == {None}
    again = ledger.record(taken.lease, 1, Batch((step, none[0], a_step("late"))))
    assert [each and each.arguments for each in again] == [step.arguments, None, b"0:"]


def test_which_attempt_held_which_fence_comes_back(ledger: Ledger) -> None:
    """A restarted process takes over as the same attempt: a fence more, and no number."""
    execution = an_execution()
    attempt = an_attempt(execution)
    take(ledger, attempt)
    take(ledger, attempt)
    taken = take(ledger, an_attempt(execution, 2))
    assert ledger.recorded(taken.lease, 1).numbers == {1: 1, 2: 1, 3: 2}
    other = start(ledger)
    assert ledger.recorded(other.lease, 1).numbers == {1: 1}


def test_a_moment_of_another_zone_is_the_same_moment(ledger: Ledger) -> None:
    taken = start(ledger)
    moment = datetime(2026, 7, 1, 5, 30, 1, 999999, tzinfo=timezone(timedelta(hours=-9.5)))
    ledger.record(taken.lease, 1, Batch((a_step(ended_at=moment),)))
    [back] = ledger.recorded(taken.lease, 1).steps
    assert (back.ended_at, back.ended_at.tzinfo) == (moment, UTC)


def test_the_first_write_wins_and_the_loser_gets_it(ledger: Ledger) -> None:
    taken = start(ledger)
    first, second = a_step(result=b'"first"', fence=1), a_step(result=b'"second"', fence=2, usage=a_usage())
    assert ledger.record(taken.lease, 1, Batch((first,))) == [None]
    assert ledger.record(taken.lease, 1, Batch((second,))) == [first]
    assert list(ledger.recorded(taken.lease, 1).steps) == [first]


def test_a_batch_answers_each_step_in_its_place(ledger: Ledger) -> None:
    taken = start(ledger)
    ledger.record(taken.lease, 1, Batch((a_step("b", result=b"1"), a_step("d", result=b"2"))))
    twice = replace(a_step("c"), result=Stored(inline=b"again"))
    batch = Batch((a_step("a"), a_step("b"), a_step("c"), twice, a_step("d"), a_step("e")))
    assert ledger.record(taken.lease, 1, batch) == [
        None,
        a_step("b", result=b"1"),
        None,
        a_step("c"),
        a_step("d", result=b"2"),
        None,
    ]
    assert sorted(step.name for step in ledger.recorded(taken.lease, 1).steps) == ["a", "b", "c", "d", "e"]


def test_steps_belong_to_their_generation_and_execution(ledger: Ledger) -> None:
    one, other = start(ledger), start(ledger)
    ledger.record(one.lease, 1, Batch((a_step(result=b"1"),)))
    assert ledger.record(one.lease, 2, Batch((a_step(result=b"2"),))) == [None]
    assert ledger.record(other.lease, 1, Batch((a_step(result=b"3"),))) == [None]
    assert [step.result.inline for step in ledger.recorded(one.lease, 1).steps] == [b"1"]
    assert [step.result.inline for step in ledger.recorded(one.lease, 2).steps] == [b"2"]
    assert list(ledger.recorded(other.lease, 2).steps) == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_superseded_attempt_s_result_counts_and_its_events_do_not(world: World, count: int) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    second = take(ledger, an_attempt(attempt.execution, 2))
    late = Batch((a_step(fence=1),), (EventRecord("step", b"{}"),) * count)
    assert ledger.record(first.lease, 1, late) == [None]
    assert world.look(first.lease.execution_pk).events == []
    assert list(ledger.recorded(second.lease, 1).steps) == [a_step(fence=1)]


def test_a_lapsed_lease_records_its_events_still(world: World) -> None:
    taken = start(world.ledger)
    world.pass_time(1_000)
    world.ledger.record(taken.lease, 1, Batch((a_step(),), (EventRecord("step", b"1"),)))
    assert world.look(taken.lease.execution_pk).events == [(1, 1, "step", b"1")]


def test_events_keep_order_number_and_bytes(world: World) -> None:
    taken = start(world.ledger)
    events = tuple(EventRecord(f"kind {number}", bytes([number, 0, 255])) for number in range(5))
    world.ledger.record(taken.lease, 1, Batch((), events[:2], 1))
    world.ledger.record(taken.lease, 1, Batch((a_step(),), events[2:3], 3))
    world.ledger.record(taken.lease, 1, Batch((a_step("x"), a_step("y")), events[3:], 4))
    assert world.look(taken.lease.execution_pk).events == [
        (1, number + 1, event.kind, event.data) for number, event in enumerate(events)
    ]


@pytest.mark.parametrize(("steps", "events"), [(1, 1), (1, 2), (3, 2), (2, 0), (0, 1)])
def test_a_batch_whose_answer_was_lost_is_written_once(world: World, steps: int, events: int) -> None:
    taken = start(world.ledger)
    batch = Batch(
        tuple(a_step(f"s{number}") for number in range(steps)),
        tuple(EventRecord(f"e{number}", b"1") for number in range(events)),
    )
    assert world.ledger.record(taken.lease, 1, batch) == [None] * steps
    assert world.ledger.record(taken.lease, 1, batch) == list(batch.steps)
    kept = [event[1:3] for event in world.look(taken.lease.execution_pk).events]
    assert kept == [(number + 1, f"e{number}") for number in range(events)]
    assert len(world.ledger.recorded(taken.lease, 1).steps) == steps


def test_a_new_step_with_an_old_event_and_an_old_step_with_a_new_event(world: World) -> None:
    taken = start(world.ledger)
    world.ledger.record(taken.lease, 1, Batch((a_step("a"),), (EventRecord("first", b"1"),), 1))
    assert world.ledger.record(taken.lease, 1, Batch((a_step("b"),), (EventRecord("other", b"2"),), 1)) == [None]
    again = a_step("a", result=b"other")
    assert world.ledger.record(taken.lease, 1, Batch((again,), (EventRecord("second", b"3"),), 2)) == [a_step("a")]
    assert [event[1:3] for event in world.look(taken.lease.execution_pk).events] == [(1, "first"), (2, "second")]
    assert len(world.ledger.recorded(taken.lease, 1).steps) == 2


def test_an_empty_batch_is_nothing(world: World) -> None:
    taken = start(world.ledger)
    assert world.ledger.record(taken.lease, 1, Batch()) == []
    assert world.look(taken.lease.execution_pk).events == []


def test_one_step_without_an_event_and_one_event_without_a_step(world: World) -> None:
    taken = start(world.ledger)
    assert world.ledger.record(taken.lease, 1, Batch((a_step(),))) == [None]
    assert world.ledger.record(taken.lease, 1, Batch((), (EventRecord("note", b"1"),))) == []
    assert len(world.look(taken.lease.execution_pk).events) == 1


def test_racing_recorders_agree_on_one_result(ledger: Ledger) -> None:
    taken = start(ledger)
    barrier = threading.Barrier(6)
    answers: list[tuple[bytes, StepRecord | None]] = []

    def race(number: int) -> None:
        mine = a_step(result=str(number).encode(), fence=number)
        barrier.wait()
        [before] = ledger.record(taken.lease, 1, Batch((mine,)))
        answers.append((str(number).encode(), before))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [stored] = ledger.recorded(taken.lease, 1).steps
    [winner] = [mine for mine, before in answers if before is None]
    assert stored.result.inline == winner
    assert [before for mine, before in answers if mine != winner] == [stored] * 5


NUL = "a\x00b"
LONE = "a\ud800b"


@pytest.mark.parametrize("steps", [1, 2])
def test_names_that_no_ledger_can_hold_do_not_cost_the_result(ledger: Ledger, steps: int) -> None:
    taken = start(ledger)
    odd = [
        a_step(NUL, unit=LONE, result=b'"a\\u0000\x00"', usage=a_usage(model=NUL, response_id=LONE)),
        a_step(LONE, unit=NUL),
    ][:steps]
    batch = Batch(tuple(odd), tuple(EventRecord(step.name, b"\x00") for step in odd))
    assert ledger.record(taken.lease, 1, batch) == [None] * steps
    back = {step.step_key: step for step in ledger.recorded(taken.lease, 1).steps}
    assert [back[step.step_key].result for step in odd] == [step.result for step in odd]
    assert back[odd[0].step_key].name == "a␀b"
    assert back[odd[0].step_key].unit == "a\\ud800b"


@pytest.mark.parametrize(
    "wrong",
    [
        {"step_key": b"short"},
        {"fingerprint": b"short"},
        {"result": Stored(sha256=b"short")},
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_step_that_breaks_a_rule_is_refused_whole(ledger: Ledger, wrong: dict[str, Any], count: int) -> None:
    taken = start(ledger)
    others = tuple(a_step(f"fine {number}") for number in range(count - 1))
    with pytest.raises(LedgerError, match="refused"):
        ledger.record(taken.lease, 1, Batch((*others, a_step(**wrong))))
    assert list(ledger.recorded(taken.lease, 1).steps) == []


def test_a_generation_starts_at_one(ledger: Ledger) -> None:
    taken = start(ledger)
    for count in (1, 2):
        with pytest.raises(LedgerError, match="refused"):
            ledger.record(taken.lease, 0, Batch(tuple(a_step(f"s{number}") for number in range(count))))


def test_many_steps_come_back_whole(ledger: Ledger) -> None:
    taken = start(ledger)
    steps = tuple(a_step("page", occurrence=number, result=str(number).encode()) for number in range(2_000))
    for start_at in range(0, len(steps), 500):
        ledger.record(taken.lease, 1, Batch(steps[start_at : start_at + 500]))
    back = {step.step_key: step for step in ledger.recorded(taken.lease, 1).steps}
    assert back == {step.step_key: step for step in steps}


def test_steps_are_read_by_their_keys_and_only_those_of_the_generation(ledger: Ledger) -> None:
    taken, other = start(ledger), start(ledger)
    large = Stored(sha256=b"\x01" * 32)
    steps = [a_step("a", kind="item"), a_step("b", kind="llm", usage=a_usage()), a_step("c", kind="item", result=large)]
    ledger.record(taken.lease, 1, Batch(tuple(steps)))
    keys = [step.step_key for step in steps]
    found = {kept.step_key: kept for kept in ledger.kept(taken.lease, 1, [*keys[1:], b"\xee" * 32, keys[1]])}
    assert set(found) == set(keys[1:])
    usage, kept = a_usage(), found[keys[1]]
    assert (kept.inline, kept.sha256, kept.seal) == (steps[1].result.inline, None, steps[1].seal)
    assert (kept.ended_at, kept.fence) == (steps[1].ended_at, steps[1].fence)
    assert (kept.tokens_in, kept.tokens_out, kept.cost) == (usage.tokens_in, usage.tokens_out, usage.cost)
    assert (found[keys[2]].inline, found[keys[2]].sha256, found[keys[2]].tokens_in) == (None, large.sha256, None)
    assert ledger.kept(taken.lease, 2, keys) == []
    assert ledger.kept(other.lease, 1, keys) == []
    assert ledger.step(taken.lease, 1, keys[1]) in ledger.recorded(taken.lease, 1).steps
    assert ledger.step(taken.lease, 2, keys[1]) is None


def test_of_many_steps_only_what_maps_made_is_left_out_and_the_sums_are_over_all(ledger: Any) -> None:
    taken = start(ledger)
    items = [a_step(f"item {n}", kind="item") for n in range(20)]
    calls = [a_step(f"call {n}", kind="llm", usage=a_usage(tokens_in=n, cost=Decimal("0.01"))) for n in range(20)]
    others = [a_step(f"other {n}", kind="step") for n in range(20)]
    unpriced = a_step("no price", kind="llm", usage=a_usage(tokens_in=1, cost=None))
    ledger.record(taken.lease, 1, Batch((*items, *calls, *others, unpriced)))
    whole = ledger.recorded(taken.lease, 1)
    assert (len(whole.steps), whole.totals, whole.count) == (61, None, 61)
    ledger.most_steps = 10
    part = ledger.recorded(taken.lease, 1)
    assert {step.name for step in others} <= {step.name for step in part.steps}
    assert len(part.steps) <= 10 + 1 + 20
    assert len({step.step_key for step in part.steps}) == len(part.steps)
    assert part.totals is not None
    assert (part.count, part.totals.calls, part.totals.tokens_in) == (61, 21, sum(range(20)) + 1)
    assert part.totals.cost == Decimal("0.20")
    assert part.numbers == whole.numbers
