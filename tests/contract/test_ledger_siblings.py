"""What a cleared mapped task finds: its siblings' steps; and what the ledger tells before a take-over."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from airflow_aiflow.durable.execution import ExecutionState, Lease, Taken
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.record import Batch, SharedStep, StepRecord, Stored
from tests.contract.ledger_world import TTL, World, a_step, an_attempt, an_execution, mark, take


class Group:
    """Be a mapped task of one run, cleared once or more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.run_id = f"manual__{uuid4()}"
        self.clears = 0
        self.tries = 1

    def execution(self, index: int) -> ExecutionId:
        """Name one of it."""
        return an_execution(run_id=self.run_id, map_index=index)

    def clear(self) -> None:
        """Let a person clear the run."""
        self.clears += 1
        self.tries += 1

    def take(self, index: int, *, new_generation: bool = False, **parts: object) -> Taken:
        """Let an attempt of a map index take over."""
        execution = an_execution(**({"run_id": self.run_id, "map_index": index} | parts))
        attempt = an_attempt(execution, self.tries, clear_number=self.clears, max_tries=3 + self.clears)
        return take(self.world.ledger, attempt, new_generation=new_generation)

    def record(self, index: int, *steps: StepRecord, new_generation: bool = False, **parts: object) -> Taken:
        """Let an attempt record steps and end."""
        taken = self.take(index, new_generation=new_generation, **parts)
        self.world.ledger.record(taken.lease, taken.generation, Batch(steps))
        self.world.ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
        return taken

    def look(self, lease: Lease, step_key: bytes) -> SharedStep | None:
        """Look for one step."""
        return next(iter(self.world.ledger.items.shared_steps(lease, [step_key])), None)


@pytest.fixture
def group(world: World) -> Group:
    """Give a mapped task."""
    return Group(world)


STEP = a_step("page", prints=b"\x00\x01\x02\x03")


def test_a_step_of_a_sibling_from_before_the_clear_is_found(group: Group) -> None:
    theirs = group.record(0, STEP)
    group.clear()
    mine = group.take(1)
    assert mine.siblings
    shared = group.look(mine.lease, STEP.step_key)
    assert shared == SharedStep(STEP, theirs.lease.execution_pk, theirs.generation)
    assert group.look(mine.lease, a_step("other").step_key) is None


def test_an_index_that_is_new_since_the_clear_finds_it_too(group: Group) -> None:
    group.record(0, STEP)
    group.clear()
    assert group.take(7).siblings


def test_before_a_clear_nothing_is_shared(group: Group) -> None:
    group.record(0, STEP)
    mine = group.take(1)
    assert not mine.siblings
    assert group.look(mine.lease, STEP.step_key) is None


def test_what_a_sibling_recorded_since_the_clear_is_not_shared(group: Group) -> None:
    group.clear()
    group.record(0, STEP)
    mine = group.take(1)
    assert not mine.siblings
    assert group.look(mine.lease, STEP.step_key) is None


def test_an_own_step_is_no_sibling_s(group: Group) -> None:
    group.record(0, STEP)
    group.clear()
    mine = group.take(0)
    assert not mine.siblings
    assert group.look(mine.lease, STEP.step_key) is None


@pytest.mark.parametrize("part", ["task_id", "dag_id", "run_id"])
def test_another_task_dag_or_run_shares_nothing(group: Group, part: str) -> None:
    parts: dict[str, Any] = {part: f"other {uuid4()}"}
    group.record(0, STEP, **parts)
    group.clear()
    mine = group.take(1)
    assert not mine.siblings
    assert group.look(mine.lease, STEP.step_key) is None


def test_an_attempt_that_holds_its_lease_shares_nothing_yet(group: Group) -> None:
    theirs = group.take(0)
    group.world.ledger.record(theirs.lease, 1, Batch((STEP,)))
    group.clear()
    mine = group.take(1)
    assert not mine.siblings
    assert group.look(mine.lease, STEP.step_key) is None
    group.world.pass_time(TTL + 1)
    assert group.look(mine.lease, STEP.step_key) is not None


def test_what_a_killed_sibling_recorded_is_shared_while_its_next_attempt_works(group: Group) -> None:
    theirs = group.take(0)
    group.world.ledger.record(theirs.lease, 1, Batch((STEP,)))
    group.clear()
    group.take(0)
    assert group.take(1).siblings


def test_the_newest_generation_wins(group: Group) -> None:
    group.record(0, a_step("page", result=b"1"))
    group.record(1, a_step("page", result=b"2"))
    group.clear()
    newest = group.record(0, a_step("page", result=b"3", fence=2), new_generation=True)
    group.clear()
    found = group.look(group.take(2).lease, STEP.step_key)
    assert found is not None
    assert (found.record.result, found.generation) == (Stored(inline=b"3"), 2)
    assert found.execution_pk == newest.lease.execution_pk


def test_of_one_generation_the_last_execution_wins(group: Group) -> None:
    group.record(0, a_step("page", result=b"1"))
    last = group.record(1, a_step("page", result=b"2"))
    group.clear()
    found = group.look(group.take(2).lease, STEP.step_key)
    assert found is not None
    assert found.execution_pk == last.lease.execution_pk


def test_the_answer_is_the_same_where_the_take_over_is_not_the_first(group: Group) -> None:
    group.record(0, STEP)
    group.record(1)
    group.clear()
    attempt = an_attempt(group.execution(1), group.tries, clear_number=1, max_tries=4)
    for _ in range(2):  # another process of the same attempt
        assert take(group.world.ledger, attempt).siblings


# --- what is told before a take-over ---


def test_a_standing_tells_what_ran_above_and_whether_airflow_knows(world: World) -> None:
    attempt = an_attempt(an_execution(), upstream_digest=b"u" * 32)
    taken = take(world.ledger, attempt)
    standing = world.ledger.standing(attempt.execution)
    assert standing is not None
    assert (standing.heard, standing.upstream_digest, standing.requeued_at) == (False, b"u" * 32, None)
    world.ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
    world.ledger.heard(taken.lease)
    standing = world.ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.heard
    take(world.ledger, an_attempt(attempt.execution, 2))
    standing = world.ledger.standing(attempt.execution)
    assert standing is not None
    assert (standing.heard, standing.upstream_digest) == (False, None)


def test_a_standing_tells_of_an_open_requeue_mark_on_its_fence(world: World) -> None:
    attempt = an_attempt(an_execution())
    taken = take(world.ledger, attempt)
    mark(world, taken.lease, 4, 5)
    standing = world.ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.requeued_at == (4, 5)
    take(world.ledger, an_attempt(attempt.execution, 2))
    standing = world.ledger.standing(attempt.execution)
    assert standing is not None
    assert standing.requeued_at is None


def test_a_pause_keeps_its_reason_until_the_next_take_over(world: World) -> None:
    attempt = an_attempt(an_execution())
    taken = take(world.ledger, attempt)
    assert world.ledger.finish(taken.lease, ExecutionState.PAUSED, result=None, reason="waits for #12 \x00")
    assert world.look(taken.lease.execution_pk).pause_reason == "waits for #12 \N{SYMBOL FOR NULL}"
    take(world.ledger, attempt)
    assert world.look(taken.lease.execution_pk).pause_reason is None


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_what_is_no_pause_has_no_reason(world: World, state: str) -> None:
    taken = take(world.ledger, an_attempt(an_execution()))
    world.ledger.finish(taken.lease, ExecutionState(state), result=None, reason="why")
    assert world.look(taken.lease.execution_pk).pause_reason is None
