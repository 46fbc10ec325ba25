"""What a take-over makes of a requeue mark, and what it keeps for recovery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_aiflow.durable.execution import ExecutionState
from tests.contract.ledger_world import TTL, World, a_question, an_attempt, an_execution, mark, take


@pytest.mark.parametrize(
    ("seen", "until", "clear_number", "ours"),
    [(0, 1, 1, True), (0, 1, 2, False), (0, 3, 3, True), (1, 2, 1, False), (0, 1, 0, False)],
)
def test_a_mark_is_consumed_by_the_attempt_of_our_clear_alone(
    world: World, seen: int, until: int, clear_number: int, ours: bool
) -> None:
    attempt = an_attempt(an_execution())
    first = take(world.ledger, attempt)
    assert not first.requeued
    mark(world, first.lease, seen, until)
    second = take(world.ledger, an_attempt(attempt.execution, 2, clear_number=clear_number, max_tries=4))
    assert second.requeued is ours
    standing = world.ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.requeued_at is None
    assert not take(world.ledger, an_attempt(attempt.execution, 3, clear_number=clear_number + 1)).requeued


def test_the_same_attempt_that_comes_back_consumes_no_mark(world: World) -> None:
    attempt = an_attempt(an_execution())
    mark(world, take(world.ledger, attempt).lease, 0, 1)
    again = replace(attempt, counters=replace(attempt.counters, clear_number=1))
    assert not take(world.ledger, again).requeued
    later = an_attempt(attempt.execution, 2, clear_number=1, max_tries=4)
    assert not take(world.ledger, later).requeued


def test_where_an_attempt_died_is_kept_and_where_one_ended_well_is_not(world: World) -> None:
    attempt = an_attempt(an_execution())
    first = take(world.ledger, attempt)
    world.ledger.beat(first.lease, ttl=TTL, idle=0, step="page")
    second = take(world.ledger, an_attempt(attempt.execution, 2))
    world.ledger.beat(second.lease, ttl=TTL, idle=0, step="mail")
    world.pass_time(TTL + 1)
    third = take(world.ledger, an_attempt(attempt.execution, 3))
    world.ledger.beat(third.lease, ttl=TTL, idle=0, step="end")
    world.ledger.finish(third.lease, ExecutionState.FAILED, result=None)
    fourth = take(world.ledger, an_attempt(attempt.execution, 4))
    world.ledger.beat(fourth.lease, ttl=TTL, idle=0, step="again")
    world.ledger.let_go(fourth.lease)
    fifth = take(world.ledger, an_attempt(attempt.execution, 5))
    assert [row[0] for row in world.look(fifth.lease.execution_pk).recovery] == ["page", "mail", None, None, None]


def test_the_author_s_word_on_recovery_is_kept(world: World) -> None:
    attempt = an_attempt(an_execution())
    take(world.ledger, replace(attempt, recovery="careful", max_recoveries=0))
    again = take(world.ledger, replace(an_attempt(attempt.execution, 2), recovery="off", max_recoveries=7))
    assert [row[1:] for row in world.look(again.lease.execution_pk).recovery] == [("careful", 0), ("off", 7)]


def test_a_heartbeat_carries_the_timeout_of_what_is_in_hand(world: World) -> None:
    attempt = an_attempt(an_execution())
    taken = take(world.ledger, attempt)
    world.ledger.beat(taken.lease, ttl=TTL, idle=0, step="train", step_timeout=3_600.0)
    assert world.look(taken.lease.execution_pk).step_timeout == 3_600.0
    world.ledger.beat(taken.lease, ttl=TTL, idle=0, step="page")
    assert world.look(taken.lease.execution_pk).step_timeout is None
    world.ledger.beat(taken.lease, ttl=TTL, idle=0, step="train", step_timeout=60.0)
    take(world.ledger, an_attempt(attempt.execution, 2))
    assert world.look(taken.lease.execution_pk).step_timeout is None


def test_an_answer_is_valid_over_our_own_clears_and_not_over_a_person_s(world: World) -> None:
    """What it is bound to is the tries as a person left them."""
    execution, rounds = an_execution(), []
    taken = take(world.ledger, an_attempt(execution, 1, max_tries=2))
    rounds.append(taken.round)
    steps = [  # (max tries, clear number, ours)
        (2, 0, False),  # an automatic retry
        (5, 1, True),
        (5, 1, False),  # a retry after our clear
        (7, 2, True),
        (7, 3, False),  # another task was cleared
        (9, 4, False),  # a person's clear
        (9, 4, False),
        (11, 5, True),
    ]
    for number, (max_tries, clear_number, ours) in enumerate(steps, 2):
        if ours:
            mark(world, taken.lease, clear_number - 1, clear_number)
        taken = take(world.ledger, an_attempt(execution, number, max_tries=max_tries, clear_number=clear_number))
        assert taken.requeued is ours
        rounds.append(taken.round)
    assert rounds == [2, 2, 2, 2, 2, 2, 9, 9, 9]


@pytest.mark.parametrize("ours", [True, False])
def test_what_is_asked_is_asked_on_after_our_own_clear_and_no_more_after_a_person_s(world: World, ours: bool) -> None:
    attempt = an_attempt(an_execution())
    taken = take(world.ledger, attempt)
    question = world.ledger.ask(taken.lease, a_question(kind="ask", name="review"))
    mark(world, taken.lease, 0, 1)
    clear_number = 1 if ours else 2
    taken = take(world.ledger, an_attempt(attempt.execution, 2, max_tries=4, clear_number=clear_number))
    waits = [one.question.number for one in world.inbox.waiting(limit=10_000) if one.question is not None]
    assert (question.number in waits) is ours
    assert world.inbox.answer(question.number, "Approve", by="ANNA", note="").counts is ours
