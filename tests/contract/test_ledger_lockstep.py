"""
Play the same random history on the ledger in memory and on the one in PostgreSQL: every answer must be the same.

The contract tests name what is meant; this finds what nobody thought of. A failing history is printed as a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.effect import LEGAL_MOVES, EffectRecord, EffectState, Intended
from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import PersonDecision, Question, Word
from airflow_aiflow.durable.record import Batch, EventRecord, Stored
from airflow_aiflow.durable.sign import read_sign
from tests.contract.ledger_world import (
    TTL,
    MemoryWorld,
    PostgresWorld,
    World,
    a_question,
    a_step,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
)

#: Moments differ between the two clocks, and the numbers of rows between the two stores; both are compared as far as
#: they mean something: a lease is live or not, an owner is gone or not.
MOMENTS = {"intended_at", "settled_at", "prior_lease_until", "asked_at", "at", "age", "done_for"}


def plain(value: Any, pks: dict[int, str]) -> Any:
    """Give what two answers have in common when they are the same."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "kind": type(value).__name__,
            **{
                field.name: _field(field.name, getattr(value, field.name), pks)
                for field in fields(value)
                if not (field.name == "number" and isinstance(value, EffectRecord | Question))
            },
        }
    if isinstance(value, list | tuple):
        return [plain(each, pks) for each in value]
    return value


def _field(name: str, value: Any, pks: dict[int, str]) -> Any:
    if name in MOMENTS:
        return value is not None
    if name == "execution_pk":
        return pks.get(value, value)
    if name == "effect_pk":
        return None
    if name in ("gone_in", "lease_left", "time_left"):
        return None if value is None else value > 0
    return plain(value, pks)


def _shape(why: str) -> str:
    """Leave the numbers of rows and the moments out of a sentence."""
    return re.sub(r"#\d+|\d[\d:-]* ?[\d:-]* UTC|\d+ s\b", "#", why)


class Lockstep(RuleBasedStateMachine):
    """Two worlds, one history."""

    postgres: PostgresWorld

    def __init__(self) -> None:
        super().__init__()
        self.worlds: tuple[World, World] = (MemoryWorld(), self.postgres)
        self.pks: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self.pairs: list[tuple[World, dict[int, str]]] = list(zip(self.worlds, self.pks, strict=True))
        #: What the few questions are bound to.
        self.bound = [uuid4().bytes * 2 for _ in range(3)]
        self.executions = [an_execution(), an_execution()]
        self.effects: list[EffectId] = [an_effect(), an_effect()]
        #: (execution, fence) of every take-over, oldest first: superseded ones go on trying.
        self.leases: list[tuple[int, int]] = []
        self.intents: list[UUID] = []
        self.tries = [0, 0]
        self.made = 0
        self.states: dict[EffectId, EffectState] = {}
        self.count = 0

    def both(self, method: str, *args: Any, **options: Any) -> Any:
        """Ask both and compare; ``("lease", n)`` stands for the lease of either ledger."""
        answers = []
        for world, pks in zip(self.worlds, self.pks, strict=True):
            own = [self._own(arg, pks) for arg in args]
            answers.append(getattr(world.ledger, method)(*own, **options))
        memory, postgres = (plain(answer, pks) for answer, pks in zip(answers, self.pks, strict=True))
        assert postgres == memory
        return answers[0]

    def _own(self, arg: Any, pks: dict[int, str]) -> Any:
        if not (isinstance(arg, tuple) and len(arg) == 2 and arg[0] == "lease"):
            return arg
        execution, fence = self.leases[arg[1]]
        [pk] = [pk for pk, name in pks.items() if name == str(execution)]
        return Lease(pk, fence)

    def lease(self, data: st.DataObject) -> tuple[str, int]:
        """Choose a lease, mostly a late one."""
        back = data.draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
        return ("lease", max(len(self.leases) - back, 0))

    def attempt(self, execution: int, kind: str) -> Attempt:
        """Make the next attempt of a kind."""
        if kind != "same":
            self.tries[execution] += 1
        number = max(self.tries[execution], 1)
        parts = {"clear_number": number, "max_tries": 3 + number} if kind == "cleared" else {}
        # Every second one has the ti id of the one before; from chance, a history could not be played again.
        self.made += 1
        ti_id = UUID(int=((1_000 + number * 10 + execution) << 80) | (7 << 76) | (2 << 62) | (self.made // 2))
        return an_attempt(self.executions[execution], number, ti_id=ti_id, **parts)

    @initialize()
    def begin(self) -> None:
        """Start one execution, so that most rules have something to work on."""
        self.take(0, "retry", False)

    @rule(
        execution=st.sampled_from([0, 0, 1]),
        kind=st.sampled_from(["retry", "retry", "same", "cleared"]),
        new_generation=st.booleans(),
    )
    def take(self, execution: int, kind: str, new_generation: bool) -> None:
        """Take over; the same attempt's ti id is made anew, which makes it another now and then."""
        attempt = self.attempt(execution, kind)
        standings = [world.ledger.standing(attempt.execution) for world in self.worlds]
        for standing, pks in zip(standings, self.pks, strict=True):
            if standing is not None:
                pks[standing.execution_pk] = str(execution)
        known = standings[0]
        assert plain(standings[1], self.pks[1]) == plain(known, self.pks[0])
        sign = read_sign(known.counters if known else None, attempt.counters)
        if sign == "older":
            return
        takens = [
            world.ledger.take_over(
                attempt,
                sign=sign,
                seen=known.fence if known else None,
                new_generation=new_generation and known is not None,
                ttl=TTL,
            )
            for world in self.worlds
        ]
        for taken, pks in zip(takens, self.pks, strict=True):
            assert taken is not None
            pks[taken.lease.execution_pk] = str(execution)
        assert plain(takens[1], self.pks[1]) == plain(takens[0], self.pks[0])
        assert takens[0] is not None
        self.leases.append((execution, takens[0].lease.fence))

    @rule(seconds=st.sampled_from([1, 10, TTL + 1, 3 * TTL, 100 * TTL]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        for world in self.worlds:
            world.pass_time(seconds)

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        """Renew a lease."""
        self.both("beat", self.lease(data), ttl=TTL, idle=0, step="page")

    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """Give a lease back."""
        self.both("let_go", self.lease(data))

    @rule(data=st.data(), state=st.sampled_from(["succeeded", "failed", "paused"]))
    def finish(self, data: st.DataObject, state: str) -> None:
        """End an attempt."""
        result = Stored(inline=b"1") if state == "succeeded" else None
        self.both("finish", self.lease(data), ExecutionState(state), result=result)

    @rule(data=st.data())
    def heard(self, data: st.DataObject) -> None:
        """Note that Airflow knows."""
        self.both("heard", self.lease(data))

    @rule(data=st.data(), steps=st.integers(0, 3), events=st.integers(0, 2), generation=st.sampled_from([1, 1, 2]))
    def record(self, data: st.DataObject, steps: int, events: int, generation: int) -> None:
        """Write steps of few names, so that they meet."""
        self.count += 1
        batch = Batch(
            tuple(a_step(data.draw(st.sampled_from("abcd")), result=str(self.count).encode()) for _ in range(steps)),
            tuple(EventRecord("e", str(self.count).encode()) for _ in range(events)),
            data.draw(st.integers(1, 4)),
        )
        self.both("record", self.lease(data), generation, batch)

    @rule(data=st.data(), effect=st.sampled_from([0, 0, 0, 1]), again=st.booleans())
    def intend(self, data: st.DataObject, effect: int, again: bool) -> None:
        """Intend, mostly on the number that is there."""
        found = self.worlds[0].ledger.effect(self.effects[effect])
        seen = data.draw(st.sampled_from([0 if found is None else found.intent_no] * 4 + [0, 1]))
        write = an_intent(self.effects[effect], seen, str(seen).encode())
        lease = self.lease(data)
        answer = self.both("intend", lease, write)
        if isinstance(answer, Intended):
            self.intents.append(write.intent_id)
            if again:
                assert self.both("intend", lease, write) == answer

    @precondition(lambda self: self.intents)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "not_applied"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        """Bring an outcome, timely or late, of any intent."""
        intent = data.draw(st.sampled_from(self.intents))
        result = Stored(inline=str(intent).encode()) if outcome == "succeeded" else None
        self.both("settle", intent, outcome, result=result, seal=b"s")

    @precondition(lambda self: self.intents)
    @rule(data=st.data())
    def doubt(self, data: st.DataObject) -> None:
        """Doubt, mostly the last intent."""
        intent = data.draw(st.sampled_from([*self.intents, *self.intents[-1:] * 3]))
        self.both("doubt", self.lease(data), intent)

    @precondition(lambda self: self.intents)
    @rule(data=st.data(), decision=st.sampled_from(["happened", "did_not_happen", "retry"]))
    def decide(self, data: st.DataObject, decision: str) -> None:
        """Decide, mostly about the last intent, after doubting it."""
        intent = data.draw(st.sampled_from([*self.intents, *self.intents[-1:] * 3]))
        lease = self.lease(data)
        self.both("doubt", lease, intent)
        self.both("decide", lease, intent, decision, by=data.draw(st.sampled_from(["one", "two"])))

    def words(self, say: Callable[[World], Word]) -> None:
        """Let a person say a word to both inboxes."""
        memory, postgres = (say(world) for world in self.worlds)
        assert (postgres.counts, _shape(postgres.why)) == (memory.counts, _shape(memory.why))

    def number_of(self, world: World, intent: UUID) -> int:
        """Give the number that a ledger gave an intent."""
        for effect in self.effects:
            found = world.ledger.effect(effect)
            if found is not None and found.intent_id == intent:
                return found.number
        return 0

    @precondition(lambda self: self.intents)
    @rule(data=st.data(), by=st.sampled_from(["ANNA", "BERT"]))
    def release(self, data: st.DataObject, by: str) -> None:
        """Let a person, or an attempt for one, release a done effect."""
        intent = data.draw(st.sampled_from([*self.intents, *self.intents[-1:] * 3]))
        if data.draw(st.booleans()):
            self.both("release", self.lease(data), intent, by=by, note="n")
        else:
            self.words(lambda world: world.inbox.release(self.number_of(world, intent), by=by, note="n"))

    @precondition(lambda self: self.intents)
    @rule(
        data=st.data(),
        decision=st.sampled_from(["happened", "did_not_happen"]),
        by=st.sampled_from(["ANNA", "BERT"]),
        given=st.booleans(),
    )
    def resolve(self, data: st.DataObject, decision: PersonDecision, by: str, given: bool) -> None:
        """Let a person decide, mostly about the last intent."""
        intent = data.draw(st.sampled_from([*self.intents, *self.intents[-1:] * 3]))
        result = Stored(inline=b"given") if given and decision == "happened" else None
        self.words(lambda world: world.inbox.resolve(self.number_of(world, intent), decision, by=by, result=result))

    @precondition(lambda self: self.intents)
    @rule(data=st.data())
    def compensated(self, data: st.DataObject) -> None:
        """Note that a done effect is undone."""
        intent = data.draw(st.sampled_from([*self.intents, *self.intents[-1:] * 3]))
        self.both("compensated", self.lease(data), intent)

    @rule(data=st.data(), place=st.sampled_from([0, 0, 1, 2]), about=st.booleans())
    def ask(self, data: st.DataObject, place: int, about: bool) -> None:
        """Ask one of few questions, where the lease is live."""
        lease = self.lease(data)
        if not all(
            world.ledger.beat(self._own(lease, pks), ttl=TTL, idle=0, step=None).held for world, pks in self.pairs
        ):
            return
        intent = self.intents[-1] if about and self.intents else None
        effect = next((each for each in self.effects if intent and self.has(each, intent)), None)
        write = a_question(effect, intent if effect else None, bound_to=self.bound[place], timeout=50.0)
        self.both("ask", lease, write)

    @rule(place=st.sampled_from([0, 0, 1, 2]), option=st.sampled_from(["Approve", "Reject", "Fail the task"]))
    def answer(self, place: int, option: str) -> None:
        """Let a person answer one of the questions."""
        self.words(lambda world: world.inbox.answer(self.asked(world, place), option, by="ANNA"))

    def asked(self, world: World, place: int) -> int:
        """Give the number of a question, 0 where it was never asked: both inboxes list them in one order."""
        if isinstance(world, MemoryWorld):
            rows = world.memory._tables.questions.values()
            return next((row.number for row in rows if row.write.bound_to == self.bound[place]), 0)
        query = "select coalesce(max(number), 0) from aiflow.question where identity = %s"
        [(number,)] = self.postgres.behind.execute(query, [self.bound[place]]).fetchall()
        return int(number)

    def has(self, effect: EffectId, intent: UUID) -> bool:
        """Say whether an intent is an effect's deciding one."""
        found = self.worlds[0].ledger.effect(effect)
        return found is not None and found.intent_id == intent

    @rule()
    def waits_alike(self) -> None:
        """Compare what waits for a person, as far as it is this history's."""
        seen = []
        for world, pks in self.pairs:
            entries = world.inbox.waiting(limit=100_000)
            seen.append(
                [
                    (plain(entry.effect, pks), plain(entry.question, pks))
                    for entry in entries
                    if (entry.effect is not None and entry.effect.effect in self.effects)
                    or (entry.question is not None and entry.question.execution in self.executions)
                ]
            )
        assert seen[1] == seen[0]

    @rule(data=st.data(), generation=st.sampled_from([1, 1, 2]))
    def recorded(self, data: st.DataObject, generation: int) -> None:
        """Read everything."""
        lease, read = self.lease(data), []
        for world, pks in zip(self.worlds, self.pks, strict=True):
            found = world.ledger.recorded(self._own(lease, pks), generation)
            read.append(
                (
                    sorted((plain(step, pks) for step in found.steps), key=repr),
                    sorted((plain(effect, pks) for effect in found.effects), key=repr),
                )
            )
        assert read[0] == read[1]

    @invariant()
    def moves_legally(self) -> None:
        """Hold every move of an effect against the domain's table; a rule makes one move at most."""
        for effect in self.effects:
            found = self.worlds[0].ledger.effect(effect)
            if found is None:
                continue
            before = self.states.get(effect)
            allowed = {EffectState.INTENDED} if before is None else {before, *LEGAL_MOVES[before]}
            assert found.state in allowed
            self.states[effect] = found.state

    def teardown(self) -> None:
        """Compare what the port does not show."""
        for execution in {execution for execution, _ in self.leases}:
            seen = []
            for world, pks in zip(self.worlds, self.pks, strict=True):
                [pk] = [pk for pk, name in pks.items() if name == str(execution)]
                seen.append(world.look(pk))
            assert seen[0] == seen[1]
        for effect in self.effects:
            self.both("effect", effect)


@pytest.fixture(scope="module")
def postgres(postgres_ledger: tuple[str, str]) -> Iterator[PostgresWorld]:
    """Give a world that all histories share; their executions and effects are their own."""
    world = PostgresWorld(*postgres_ledger)
    yield world
    world.ledger.close()
    world.close()


def test_both_ledgers_answer_alike(postgres: PostgresWorld) -> None:
    class Shared(Lockstep):
        pass

    Shared.postgres = postgres
    run_state_machine_as_test(
        Shared,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
