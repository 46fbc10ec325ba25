"""The contract of take-over, lease, heartbeat and end: one row, one owner, an order of tries that nothing can turn."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pytest

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.execution import Beat, ExecutionState, Lease, Taken
from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import LedgerError
from tests.contract.ledger_world import TTL, World, an_attempt, an_execution, an_intent, owner_of, start, take, uuid7
from tests.contract.ledger_world import an_effect as effect


def test_a_fresh_ledger_passes_its_check_and_knows_nobody(ledger: Ledger) -> None:
    ledger.check()
    assert ledger.standing(an_execution()) is None


def test_the_first_attempt_gets_fence_generation_and_number_one(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution(map_index=3), upstream_digest=b"u" * 32)
    taken = ledger.take_over(attempt, sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL)
    assert taken is not None
    assert taken == Taken(Lease(taken.lease.execution_pk, 1), 1, Sign.FIRST, 1, None, round=3)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert (standing.execution_pk, standing.fence) == (taken.lease.execution_pk, 1)
    assert (standing.generation, standing.state) == (1, ExecutionState.RUNNING)
    assert (standing.counters, standing.owner) == (attempt.counters, attempt.owner)
    assert standing.lease_left == pytest.approx(TTL, abs=5)


def test_a_retry_raises_fence_and_number_and_keeps_the_generation(world: World) -> None:
    first = an_attempt(an_execution())
    take(world.ledger, first)
    world.pass_time(TTL + 1)
    second = take(world.ledger, an_attempt(first.execution, 2))
    assert (second.lease.fence, second.number, second.generation, second.sign) == (2, 2, 1, Sign.RETRY)
    assert second.prior_lease_until is not None
    assert second.prior_lease_until.utcoffset() == timedelta(0)
    assert world.look(second.lease.execution_pk).attempts == [(1, "first", "lapsed"), (2, "retry", None)]


def test_the_same_attempt_keeps_its_number(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution())
    take(ledger, attempt)
    again = take(ledger, replace(attempt, owner=owner_of(attempt.counters.ti_id, pid=4712)))
    assert (again.lease.fence, again.number, again.sign) == (2, 1, Sign.SAME)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.owner.pid == 4712


def test_a_new_generation_grows_by_one(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution())
    take(ledger, attempt)
    cleared = an_attempt(attempt.execution, 2, max_tries=4, clear_number=1)
    assert take(ledger, cleared, new_generation=True).generation == 2


@pytest.mark.parametrize("run_after", [None, datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5.5)))])
def test_counters_come_back_as_they_were(ledger: Ledger, run_after: datetime | None) -> None:
    attempt = an_attempt(an_execution(), 7, run_after=run_after, max_tries=9, retries=2, clear_number=4)
    take(ledger, attempt)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.counters == attempt.counters


def test_a_take_over_on_a_fence_that_moved_changes_nothing(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    take(ledger, an_attempt(attempt.execution, 2))
    late = an_attempt(attempt.execution, 3)
    assert ledger.take_over(late, sign=Sign.RETRY, seen=1, new_generation=True, ttl=TTL) is None
    assert ledger.take_over(late, sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL) is None
    assert ledger.take_over(late, sign=Sign.RETRY, seen=3, new_generation=False, ttl=TTL) is None
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert (standing.fence, standing.generation, standing.counters.try_number) == (2, 1, 2)
    assert len(world.look(first.lease.execution_pk).attempts) == 2


def test_a_take_over_of_what_nobody_knows_needs_no_fence(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution())
    assert ledger.take_over(attempt, sign=Sign.RETRY, seen=1, new_generation=False, ttl=TTL) is None
    assert ledger.standing(attempt.execution) is None


def test_an_older_attempt_is_refused(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution(), 2)
    take(ledger, attempt)
    older = an_attempt(attempt.execution, 1)
    with pytest.raises(ValueError, match="older attempt"):
        take(ledger, older)
    # And where its sign was computed before the newer one came, the fence refuses it.
    assert ledger.take_over(older, sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL) is None


@pytest.mark.parametrize(("sign", "seen"), [(Sign.FIRST, 1), (Sign.RETRY, None)])
def test_a_sign_that_does_not_fit_its_fence_is_refused(ledger: Ledger, sign: Sign, seen: int | None) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        ledger.take_over(an_attempt(an_execution()), sign=sign, seen=seen, new_generation=False, ttl=TTL)


@pytest.mark.parametrize("known", [False, True])
def test_of_many_takers_one_wins_each_fence(ledger: Ledger, known: bool) -> None:
    execution = an_execution()
    if known:
        take(ledger, an_attempt(execution, 1))
    seen = 1 if known else None
    takers = [an_attempt(execution, 2, ti_id=uuid7(5_000 + number)) for number in range(8)]
    barrier = threading.Barrier(len(takers))
    won: list[tuple[Attempt, Taken]] = []

    def race(attempt: Attempt) -> None:
        barrier.wait()
        sign = Sign.RETRY if known else Sign.FIRST
        taken = ledger.take_over(attempt, sign=sign, seen=seen, new_generation=False, ttl=TTL)
        if taken is not None:
            won.append((attempt, taken))

    threads = [threading.Thread(target=race, args=(attempt,)) for attempt in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    standing = ledger.standing(execution)
    assert standing is not None
    assert [(attempt.counters.ti_id, taken.lease.fence) for attempt, taken in won] == [
        (standing.counters.ti_id, standing.fence)
    ]
    assert standing.fence == (2 if known else 1)


def test_a_take_over_whose_answer_was_lost_is_repeated_as_the_same_attempt(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    ledger.take_over(attempt, sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL)
    assert ledger.take_over(attempt, sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL) is None
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.owner == attempt.owner
    again = take(ledger, attempt)
    assert (again.number, again.generation, again.sign) == (1, 1, Sign.SAME)


# --- the lease ---


def test_the_former_lease_s_end_is_kept(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    ledger.beat(first.lease, ttl=TTL, idle=0, step=None)
    taken = take(ledger, an_attempt(attempt.execution, 2), ttl=5 * TTL)
    third = take(ledger, an_attempt(attempt.execution, 3))
    assert taken.prior_lease_until is not None
    assert third.prior_lease_until is not None
    later = (third.prior_lease_until - taken.prior_lease_until).total_seconds()
    assert later == pytest.approx(4 * TTL, abs=5)
    assert world.look(first.lease.execution_pk).attempts[0][2] == "superseded"


def test_an_owner_that_is_verified_dead_has_lapsed_whatever_its_lease_says(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    later = an_attempt(attempt.execution, 2)
    taken = ledger.take_over(later, sign=Sign.RETRY, seen=1, new_generation=False, ttl=TTL, dead=True)
    assert taken is not None
    assert taken.prior_lease_until is not None
    assert world.look(first.lease.execution_pk).attempts[0][2] == "lapsed"


@pytest.mark.parametrize("end", ["let_go", "finish"])
def test_a_lease_that_was_given_back_ended_then(world: World, end: str) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    if end == "finish":
        ledger.finish(first.lease, ExecutionState.FAILED, result=None)
    else:
        ledger.let_go(first.lease)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.lease_left <= 0
    world.pass_time(100)
    second = take(ledger, an_attempt(attempt.execution, 2))
    third = take(ledger, an_attempt(attempt.execution, 3))
    assert second.prior_lease_until is not None
    assert third.prior_lease_until is not None
    # The first ended 100 s ago, the second's lease has 30 s to go.
    assert (third.prior_lease_until - second.prior_lease_until).total_seconds() == pytest.approx(100 + TTL, abs=5)


def test_a_heartbeat_renews_and_carries_the_progress(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    taken = take(ledger, attempt)
    world.pass_time(20)
    assert ledger.beat(taken.lease, ttl=TTL, idle=3, step="page") == Beat(held=True, wanted=False)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.lease_left == pytest.approx(TTL, abs=5)
    assert world.look(taken.lease.execution_pk).step_in_hand == "page"


def test_a_lapsed_lease_that_nobody_took_is_renewed(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    taken = take(ledger, attempt)
    world.pass_time(TTL + 10)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.lease_left == pytest.approx(-10, abs=5)
    assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.lease_left > 0


def test_a_superseded_attempt_beats_nothing(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution())
    first = take(ledger, attempt)
    second = take(ledger, an_attempt(attempt.execution, 2), ttl=5 * TTL)
    assert ledger.beat(first.lease, ttl=1, idle=0, step="mine") == Beat(held=False, wanted=False)
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.lease_left > TTL
    assert ledger.beat(second.lease, ttl=TTL, idle=0, step=None).held


def test_a_newcomer_s_wish_is_seen_by_the_heartbeat(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution())
    taken = take(ledger, attempt)
    assert ledger.want(taken.lease.execution_pk, 1, uuid4())
    assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None) == Beat(held=True, wanted=True)
    second = take(ledger, an_attempt(attempt.execution, 2))
    assert not ledger.want(taken.lease.execution_pk, 1, uuid4())
    assert ledger.beat(second.lease, ttl=TTL, idle=0, step=None) == Beat(held=True, wanted=False)


def test_nobody_wants_a_lease_that_was_let_go(ledger: Ledger) -> None:
    taken = start(ledger)
    ledger.let_go(taken.lease)
    assert not ledger.want(taken.lease.execution_pk, 1, uuid4())
    assert not ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held
    ledger.let_go(taken.lease)


def test_a_superseded_attempt_lets_nothing_go(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution())
    first = take(ledger, attempt)
    second = take(ledger, an_attempt(attempt.execution, 2))
    ledger.let_go(first.lease)
    assert ledger.beat(second.lease, ttl=TTL, idle=0, step=None).held


# --- the end ---


@pytest.mark.parametrize("state", ["succeeded", "failed", "paused"])
def test_an_end_is_written_once(world: World, state: str) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    taken = take(ledger, attempt)
    result = Stored(inline=b"[1]") if state == "succeeded" else None
    assert ledger.finish(taken.lease, ExecutionState(state), result=result, seal=b"s")
    seen = world.look(taken.lease.execution_pk)
    assert (seen.state, seen.has_result, seen.finished) == (state, result is not None, state != "paused")
    assert seen.attempts == [(1, "first", state)]
    # A repeat after a lost answer says the same; another end does not replace the first.
    assert ledger.finish(taken.lease, ExecutionState(state), result=result, seal=b"s")
    assert ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    assert world.look(taken.lease.execution_pk) == seen
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.state is ExecutionState(state)


def test_an_attempt_that_let_go_may_still_say_how_it_ended(world: World) -> None:
    taken = start(world.ledger)
    world.ledger.let_go(taken.lease)
    assert world.look(taken.lease.execution_pk).attempts == [(1, "first", "let_go")]
    assert world.ledger.finish(taken.lease, ExecutionState.PAUSED, result=None)
    assert world.look(taken.lease.execution_pk).attempts == [(1, "first", "paused")]


def test_a_superseded_attempt_ends_nothing(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    second = take(ledger, an_attempt(attempt.execution, 2))
    assert not ledger.finish(first.lease, ExecutionState.SUCCEEDED, result=Stored(inline=b"1"))
    seen = world.look(first.lease.execution_pk)
    assert (seen.state, seen.has_result) == ("running", False)
    assert ledger.beat(second.lease, ttl=TTL, idle=0, step=None).held


def test_a_take_over_opens_a_finished_execution_again(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    ledger.finish(first.lease, ExecutionState.SUCCEEDED, result=Stored(sha256=b"a" * 32), seal=b"s")
    take(ledger, an_attempt(attempt.execution, 2, max_tries=4, clear_number=1))
    seen = world.look(first.lease.execution_pk)
    assert (seen.state, seen.has_result, seen.finished) == ("running", False, False)
    assert seen.attempts == [(1, "first", "succeeded"), (2, "cleared", None)]


@pytest.mark.parametrize(
    ("state", "result"),
    [
        (ExecutionState.RUNNING, None),
        (ExecutionState.CANCELLED, Stored(inline=b"1")),
        (ExecutionState.FAILED, Stored(inline=b"1")),
        (ExecutionState.PAUSED, Stored(inline=b"1")),
    ],
)
def test_what_is_no_end_is_refused(ledger: Ledger, state: ExecutionState, result: Stored | None) -> None:
    taken = start(ledger)
    with pytest.raises(ValueError, match=r"ends as|has no result"):
        ledger.finish(taken.lease, state, result=result)


def test_heard_needs_a_success_and_the_fence(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    assert not ledger.heard(first.lease)
    ledger.finish(first.lease, ExecutionState.SUCCEEDED, result=None)
    assert ledger.heard(first.lease)
    assert ledger.heard(first.lease)
    assert world.look(first.lease.execution_pk).heard
    second = take(ledger, an_attempt(attempt.execution, 2))
    assert not ledger.heard(first.lease)
    ledger.finish(second.lease, ExecutionState.SUCCEEDED, result=None)
    assert not ledger.heard(first.lease)
    assert not world.look(first.lease.execution_pk).heard


def test_another_attempt_clears_heard_and_the_same_keeps_it(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    ledger.finish(first.lease, ExecutionState.SUCCEEDED, result=None)
    ledger.heard(first.lease)
    take(ledger, attempt)
    assert world.look(first.lease.execution_pk).heard
    # The race of Airflow in which the ti id stays and the try number grows is another attempt.
    take(ledger, an_attempt(attempt.execution, 2, ti_id=attempt.counters.ti_id))
    assert not world.look(first.lease.execution_pk).heard


# --- odd input ---

ODD = ["../..", "a/b+c:d%2F é#?", "m__2026-01-01T00:00:00+00:00", "😀" * 250, "ا\u202eب\u200d", "x" * 250, "'; drop--"]


@pytest.mark.parametrize("odd", ODD)
def test_odd_ids_name_one_execution_each(ledger: Ledger, odd: str) -> None:
    mark = str(uuid4())[:8]
    long = (odd + mark)[-250:]
    executions = [an_execution(dag_id=long), an_execution(run_id=long), an_execution(task_id=long)]
    executions.append(an_execution(dag_id=long, run_id=long, task_id=long, map_index=2**31 - 1))
    pks = [take(ledger, an_attempt(execution)).lease.execution_pk for execution in executions]
    assert len(set(pks)) == len(executions)
    for execution, pk in zip(executions, pks, strict=True):
        standing = ledger.standing(execution)
        assert standing is not None
        assert standing.execution_pk == pk


@pytest.mark.parametrize(("dag_id", "run_id"), [("a", "b/c"), ("a/b", "c"), ("a", "b_c"), ("a_b", "c")])
def test_ids_never_run_into_each_other(ledger: Ledger, dag_id: str, run_id: str) -> None:
    others = [("a", "b/c"), ("a/b", "c"), ("a", "b_c"), ("a_b", "c")]
    mark = f"pay-{uuid4()}"
    taken = take(ledger, an_attempt(an_execution(dag_id=dag_id, run_id=run_id, task_id=mark)))
    for other in others:
        standing = ledger.standing(an_execution(dag_id=other[0], run_id=other[1], task_id=mark))
        assert (standing is not None) == (other == (dag_id, run_id))
    assert taken.lease.fence == 1


@pytest.mark.parametrize("bad", ["nul\x00", "lone\ud800"])
def test_an_identity_that_no_ledger_can_hold_is_refused_by_name(ledger: Ledger, bad: str) -> None:
    with pytest.raises(LedgerError, match=r"run_id .*U\+0000"):
        ledger.standing(an_execution(run_id=bad))
    with pytest.raises(LedgerError, match=r"task_id .*U\+0000"):
        take(ledger, an_attempt(an_execution(task_id=bad)))
    taken = start(ledger)
    with pytest.raises(LedgerError, match=r"effect name .*U\+0000"):
        ledger.intend(taken.lease, an_intent(effect(name=bad)))


@pytest.mark.parametrize("bad", ["nul\x00", "lone\ud800"])
def test_a_step_name_in_hand_may_hold_anything(ledger: Ledger, bad: str) -> None:
    taken = start(ledger)
    assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=bad).held


def test_the_row_knows_nothing_of_a_logical_date(ledger: Ledger) -> None:
    execution = an_execution()
    taken = take(ledger, an_attempt(execution, run_after=None))
    again = take(ledger, an_attempt(execution, 2, run_after=None))
    assert (taken.sign, again.sign) == (Sign.FIRST, Sign.RETRY)
