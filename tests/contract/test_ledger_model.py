"""
Play random histories of one effect's moves on each ledger and hold every answer against a small model.

The model knows nothing of statements, leases of rows or joins: it is the paper's table of states, twenty lines of it,
with what must hold whatever happens. Attempts of several executions, persons and late outcomes come in any order.

``AIFLOW_MODEL_STEPS`` makes it longer: that many steps in all, on each ledger.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_aiflow.durable.effect import LEGAL_MOVES, OPEN_TO_INTENT, EffectRecord, EffectState, Intended
from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.record import Stored
from tests.contract.ledger_world import (
    TIMEOUT,
    TTL,
    MemoryWorld,
    PostgresWorld,
    World,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
    take,
)

#: Steps of one history: enough for three intents, each doubted, decided and settled late.
LENGTH = 40

#: Steps in all, on each ledger, unless the environment asks for more: a second of the memory's, four of PostgreSQL's.
STEPS = 400

IN_DOUBT, INTENDED, FAILED = EffectState.IN_DOUBT, EffectState.INTENDED, EffectState.FAILED
SUCCEEDED, RELEASED, COMPENSATED = EffectState.SUCCEEDED, EffectState.RELEASED, EffectState.COMPENSATED


@dataclass
class Call:
    """Be an intent, as the paper has it."""

    intent_id: UUID
    no: int
    repeat: int
    lease: Lease
    outcome: str | None = None
    decision: str | None = None
    by: str | None = None
    result: bytes | None = None


@dataclass
class Paper:
    """Be an effect, as the paper has it."""

    repeat: int = 0
    #: Every state that it was in.
    states: list[EffectState] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: Whose success counts.
    done: Call | None = None
    twice: bool = False

    @property
    def state(self) -> EffectState | None:
        """The state now; ``None``: never intended."""
        return self.states[-1] if self.states else None

    def become(self, state: EffectState) -> None:
        """Move."""
        if state is not self.state:
            self.states.append(state)

    def intend(self, call: Call) -> None:
        """Begin a call."""
        self.repeat = call.repeat
        self.calls.append(call)
        self.done = None
        self.become(INTENDED)

    def settle(self, call: Call, outcome: str, result: bytes | None) -> None:
        """Take an outcome: the first of each call counts, and a success wins over everything."""
        if call.outcome is not None:
            return
        call.outcome = outcome
        if call.result is None:
            call.result = result
        current = call is self.calls[-1]
        if outcome == "not_applied":
            if current and self.state in (INTENDED, IN_DOUBT):
                self.become(FAILED)
        elif call.repeat == self.repeat and self.state in (INTENDED, IN_DOUBT, FAILED):
            self.twice |= not current and self.state is not FAILED
            self.done = call
            self.become(SUCCEEDED)
        else:
            self.twice |= call.decision != "happened"

    def decide(self, call: Call, decision: str, by: str, result: bytes | None) -> None:
        """Take a word about the call that is open."""
        call.decision, call.by = decision, by
        if decision == "happened":
            self.done, call.result = call, result
            self.become(SUCCEEDED)
        else:
            self.become(FAILED)


class OneEffect(RuleBasedStateMachine):
    """One effect, two executions that want it, and persons."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.inbox = self.world.ledger, self.world.inbox
        self.effect = an_effect()
        self.executions = [an_execution(), an_execution()]
        self.tries = [0, 0]
        self.leases: list[tuple[int, Lease]] = []
        self.paper = Paper()
        self.numbers: list[int] = []
        self.count = 0

    # --- who holds what: time is the tests', so that each answer can be foretold ---

    def live(self, lease: Lease) -> bool:
        """Say whether an attempt holds its lease now: the last one of its execution, and it has beaten since."""
        standing = self.ledger.standing(self.executions[self.of(lease)])
        assert standing is not None
        return standing.fence == lease.fence and standing.lease_left > 0

    def of(self, lease: Lease) -> int:
        """Say whose lease it is."""
        return next(execution for execution, each in self.leases if each == lease)

    def record(self) -> EffectRecord:
        """Read the effect."""
        found = self.ledger.effect(self.effect)
        assert found is not None
        return found

    def draw_lease(self, data: st.DataObject) -> Lease:
        """Choose an attempt, mostly the last one, which mostly has just beaten: else little is ever allowed."""
        back = data.draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
        lease = self.leases[max(len(self.leases) - back, 0)][1]
        if data.draw(st.sampled_from([True, True, True, False])):
            self.ledger.beat(lease, ttl=TTL, idle=0, step=None)
        return lease

    def draw_call(self, data: st.DataObject) -> Call:
        """Choose a call, mostly the last one."""
        return data.draw(st.sampled_from([*self.paper.calls, *self.paper.calls[-1:] * 2]))

    @initialize()
    def begin(self) -> None:
        """Have an attempt at work."""
        self.take_over(0)

    @rule(execution=st.sampled_from([0, 0, 1]))
    def take_over(self, execution: int) -> None:
        """Start the next attempt; the one before may not know."""
        self.tries[execution] += 1
        taken = take(self.ledger, an_attempt(self.executions[execution], self.tries[execution]))
        self.leases.append((execution, taken.lease))

    @rule(seconds=st.sampled_from([5, TTL + 1, TTL + TIMEOUT + 1]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.world.pass_time(seconds)

    @rule(data=st.data(), state=st.sampled_from(["succeeded", "failed", "paused"]))
    def end(self, data: st.DataObject, state: str) -> None:
        """End an attempt, also one with an open call."""
        self.ledger.finish(self.draw_lease(data), ExecutionState(state), result=None)

    # --- the moves ---

    @rule(data=st.data(), stale=st.sampled_from([False, False, False, True]))
    def intend(self, data: st.DataObject, stale: bool) -> None:
        """Begin a call, now and then on what is not the case any more."""
        self.intended(self.draw_lease(data), max(len(self.paper.calls) - stale, 0))

    def intended(self, lease: Lease, seen: int) -> None:
        """Begin a call, and compare."""
        paper = self.paper
        open_to = paper.state is None or (paper.state in OPEN_TO_INTENT and seen == len(paper.calls))
        allowed = open_to and self.live(lease)
        write = an_intent(self.effect, seen)
        answer = self.ledger.intend(lease, write)
        assert isinstance(answer, Intended) == allowed
        if isinstance(answer, Intended):
            repeat = paper.repeat + (paper.state in (RELEASED, COMPENSATED))
            assert (answer.intent_no, answer.repeat) == (len(paper.calls) + 1, repeat)
            paper.intend(Call(write.intent_id, answer.intent_no, repeat, lease))

    @precondition(lambda self: self.paper.calls)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "succeeded", "not_applied"]))
    def settle(self, data: st.DataObject, outcome: Any) -> None:
        """Bring an outcome, timely or late, from whoever made the call."""
        call = self.draw_call(data)
        self.count += 1
        result = str(self.count).encode() if outcome == "succeeded" else None
        stored = None if result is None else Stored(inline=result)
        settled = self.ledger.settle(call.intent_id, outcome, result=stored, seal=b"s")
        self.paper.settle(call, outcome, result)
        assert (settled.state, settled.duplicate_suspected) == (self.paper.state, self.paper.twice)

    @precondition(lambda self: self.paper.calls)
    @rule(data=st.data())
    def doubt(self, data: st.DataObject) -> None:
        """Put a call in doubt: only the current one, and not while another owner of it is at work."""
        self.doubted(self.draw_call(data), self.draw_lease(data))

    def doubted(self, call: Call, lease: Lease) -> None:
        """Doubt, and compare."""
        paper = self.paper
        current = call is paper.calls[-1]
        theirs = self.of(call.lease) != self.of(lease) and self.live(call.lease)
        allowed = current and self.live(lease) and (paper.state is IN_DOUBT or (paper.state is INTENDED and not theirs))
        assert self.ledger.doubt(lease, call.intent_id) == allowed
        if allowed:
            paper.become(IN_DOUBT)

    @precondition(lambda self: self.paper.calls)
    @rule(
        data=st.data(),
        decision=st.sampled_from(["happened", "did_not_happen", "retry"]),
        by=st.sampled_from(["reconcile", "policy"]),
        given=st.booleans(),
    )
    def decide(self, data: st.DataObject, decision: Any, by: str, given: bool) -> None:
        """Let an attempt decide, mostly after a doubt; the first word wins, and the same one again is the same."""
        call, lease = self.draw_call(data), self.draw_lease(data)
        if data.draw(st.sampled_from([True, True, False])):
            self.doubted(call, lease)
        self.decided(call, lease, decision, by, b"given" if given and decision == "happened" else None)

    def decided(self, call: Call, lease: Lease, decision: Any, by: str, result: bytes | None) -> None:
        """Decide, and compare."""
        paper = self.paper
        stored = None if result is None else Stored(inline=result)
        free = call is paper.calls[-1] and paper.state is IN_DOUBT and call.decision is None and call.outcome is None
        same = (call.decision, call.by) == (decision, by)
        allowed = self.live(lease) and (free or same)
        assert self.ledger.decide(lease, call.intent_id, decision, by=by, result=stored) == allowed
        if allowed and free:
            paper.decide(call, decision, by, result)

    @precondition(lambda self: self.paper.calls)
    @rule(
        data=st.data(), decision=st.sampled_from(["happened", "did_not_happen"]), by=st.sampled_from(["ANNA", "BERT"])
    )
    def resolve(self, data: st.DataObject, decision: Any, by: str) -> None:
        """Let a person decide, without a lease: nobody decides while the owner may be at work."""
        call, paper = self.draw_call(data), self.paper
        if data.draw(st.booleans()):
            self.doubted(call, self.draw_lease(data))
        current = call is paper.calls[-1]
        gone = current and self.record().gone_in <= 0
        free = (
            current
            and call.decision is None
            and call.outcome is None
            and (paper.state is IN_DOUBT or (paper.state is INTENDED and gone))
        )
        same = (call.decision, call.by) == (decision, by)
        refuted = decision == "did_not_happen" and call.outcome == "succeeded"
        word = self.inbox.resolve(self.numbers[call.no - 1], decision, by=by)
        assert word.counts == (free or (same and not refuted))
        assert bool(word.why) == (not word.counts)
        if free:
            paper.decide(call, decision, by, None)

    @precondition(lambda self: self.paper.calls)
    @rule(data=st.data(), way=st.sampled_from(["person", "attempt", "compensated"]))
    def lift(self, data: st.DataObject, way: str) -> None:
        """Release what a call did, or note that it is undone: only what counts now."""
        self.lifted(self.draw_call(data), self.draw_lease(data), way)

    def lifted(self, call: Call, lease: Lease, way: str) -> None:
        """Lift, and compare."""
        paper = self.paper
        counts, goal = paper.done is call, COMPENSATED if way == "compensated" else RELEASED
        free = counts and paper.state is SUCCEEDED
        again = counts and paper.state is goal
        if way == "person":
            # Said once by each, so that a repeat is never the same person's word.
            self.count += 1
            told = self.inbox.release(self.numbers[call.no - 1], by=f"P{self.count}", note="n").counts
            assert told == free
        else:
            move = self.ledger.compensated if way == "compensated" else self._release
            told = move(lease, call.intent_id)
            assert told == (self.live(lease) and (free or again))
        if told and free:
            paper.become(goal)

    @rule(data=st.data(), moves=st.integers(1, 8))
    def go_on(self, data: st.DataObject, moves: int) -> None:
        """Make some moves that are allowed, one after another: an effect with a long past is rarely come to else."""
        lease = self.leases[-1][1]
        for _ in range(moves):
            self.ledger.beat(lease, ttl=TTL, idle=0, step=None)
            self.reads_as_the_paper_says()
            paper = self.paper
            if paper.state is None or paper.state in OPEN_TO_INTENT:
                self.intended(lease, len(paper.calls))
            elif paper.state is SUCCEEDED:
                self.lifted(paper.done or paper.calls[-1], lease, data.draw(st.sampled_from(["person", "compensated"])))
            elif paper.state is IN_DOUBT:
                words = ["did_not_happen", "did_not_happen", "retry", "happened"]
                self.decided(paper.calls[-1], lease, data.draw(st.sampled_from(words)), "policy", None)
            else:
                self.doubted(paper.calls[-1], lease)

    def _release(self, lease: Lease, intent_id: UUID) -> bool:
        return self.ledger.release(lease, intent_id, by="rule", note="n")

    # --- what must hold ---

    @invariant()
    def reads_as_the_paper_says(self) -> None:
        """Compare the effect with the paper, and its numbers with the order of its calls."""
        paper, found = self.paper, self.ledger.effect(self.effect)
        if paper.state is None:
            assert found is None
            return
        assert found is not None
        call = paper.done or paper.calls[-1]
        assert (found.state, found.repeat, found.intent_no) == (paper.state, paper.repeat, len(paper.calls))
        assert (found.intent_id, found.decision, found.decided_by) == (call.intent_id, call.decision, call.by)
        assert found.duplicate_suspected == paper.twice
        assert (None if found.result is None else found.result.inline) == (
            call.result if call.outcome == "succeeded" or call.decision == "happened" else None
        )
        if len(self.numbers) < len(paper.calls):
            self.numbers.append(found.number)
        assert self.numbers == sorted(set(self.numbers))
        assert found.number == self.numbers[call.no - 1]

    @invariant()
    def moves_legally(self) -> None:
        """Hold the paper's own moves against the domain's table."""
        for before, now in itertools.pairwise(self.paper.states):
            assert now in LEGAL_MOVES[before]
        assert self.paper.states[:1] in ([], [INTENDED])

    @invariant()
    def a_doubt_waits_for_a_person(self) -> None:
        """A doubt is in the inbox, and nothing else of this effect but an open call that was left."""
        if not self.numbers:
            return
        last = self.numbers[-1]
        waits = [entry for entry in self.inbox.waiting(after=last - 1, limit=100_000) if entry.number == last]
        if self.paper.state is IN_DOUBT:
            assert len(waits) == 1
        elif waits:
            assert self.paper.state is INTENDED
            assert self.record().gone_in <= 0


@pytest.fixture(params=["memory", "postgres"], scope="module")
def shared_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Give a world that all histories share; their executions and effects are their own."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    world = PostgresWorld(*request.getfixturevalue("postgres_ledger"))
    yield world
    world.ledger.close()
    world.close()


def test_an_effect_moves_as_the_paper_says(shared_world: World) -> None:
    class Shared(OneEffect):
        world = shared_world

    steps = int(os.environ.get("AIFLOW_MODEL_STEPS", STEPS))
    chance = int(os.environ.get("AIFLOW_MODEL_SEED", 0)) or Random().getrandbits(32)
    print(f"seed {chance}: AIFLOW_MODEL_SEED={chance} plays it again")
    run_state_machine_as_test(
        seed(chance)(Shared),
        settings=settings(
            max_examples=max(steps // LENGTH, 1),
            stateful_step_count=LENGTH,
            deadline=None,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
