"""
The contract of the inbox: what waits for a person, and words that are compare-and-set on the very call they are about.

The first word wins, and who comes second is told who was first; what a word cannot change it leaves as it is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from airflow_aiflow.durable.effect import EffectRecord, EffectState, Intended, IntentWrite, Settled
from airflow_aiflow.durable.execution import ExecutionState, Taken
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import InboxEntry, PersonDecision, Question, Word
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import LedgerError
from tests.contract.ledger_world import (
    TIMEOUT,
    TTL,
    World,
    a_question,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
    start,
    take,
)

DONE = Stored(inline=b'{"id":"ch_1"}')
GIVEN = Stored(inline=b'{"id":"given"}')


@dataclass
class Story:
    """Tell of one effect."""

    world: World
    taken: Taken
    effect: EffectId
    write: IntentWrite

    @property
    def record(self) -> EffectRecord:
        """Read the effect."""
        found = self.world.ledger.effect(self.effect)
        assert found is not None
        return found

    @property
    def number(self) -> int:
        """Give the number of the intent that counts."""
        return self.record.number

    def resolve(self, decision: PersonDecision = "happened", by: str = "ANNA", **parts: Any) -> Word:
        """Say what became of the first intent."""
        return self.world.inbox.resolve(self.number, decision, by=by, **parts)

    def again(self, seen: int) -> IntentWrite:
        """Write the next intent."""
        write = an_intent(self.effect, seen)
        assert isinstance(self.world.ledger.intend(self.taken.lease, write), Intended)
        return write

    def entry(self) -> InboxEntry | None:
        """Find the effect among what waits."""
        [*found] = [
            entry
            for entry in self.world.inbox.waiting(after=self.number - 1, limit=1_000)
            if entry.effect is not None and entry.effect.effect == self.effect
        ]
        assert len(found) <= 1
        return found[0] if found else None


@pytest.fixture
def begun(world: World) -> Story:
    """Give an effect whose call has begun."""
    taken, effect = start(world.ledger), an_effect()
    write = an_intent(effect)
    assert isinstance(world.ledger.intend(taken.lease, write), Intended)
    return Story(world, taken, effect, write)


@pytest.fixture
def doubted(begun: Story) -> Story:
    """Give an effect that its own attempt has put in doubt."""
    assert begun.world.ledger.doubt(begun.taken.lease, begun.write.intent_id)
    return begun


@pytest.fixture
def done(begun: Story) -> Story:
    """Give an effect that is done."""
    begun.world.ledger.settle(begun.write.intent_id, "succeeded", result=DONE, seal=b"s")
    return begun


# --- numbers ---


def test_intents_and_questions_draw_from_one_series(doubted: Story) -> None:
    world = doubted.world
    asked = world.ledger.ask(doubted.taken.lease, a_question(doubted.effect, doubted.write.intent_id))
    other = Story(world, doubted.taken, an_effect(), doubted.write)
    world.ledger.intend(doubted.taken.lease, an_intent(other.effect))
    assert doubted.number < asked.number < other.number
    assert world.inbox.effect_numbered(asked.number) is None
    assert world.inbox.question(doubted.number) is None
    assert world.inbox.question(asked.number) is not None


def test_an_effect_is_found_by_the_number_of_each_of_its_intents(begun: Story) -> None:
    first = begun.number
    begun.world.ledger.settle(begun.write.intent_id, "not_applied", result=None)
    begun.again(1)
    assert begun.number > first
    for number in (first, begun.number):
        found = begun.world.inbox.effect_numbered(number)
        assert found is not None
        assert (found.effect, found.number) == (begun.effect, begun.number)


# --- resolve ---


@pytest.mark.parametrize(("decision", "state"), [("happened", "succeeded"), ("did_not_happen", "failed")])
def test_a_person_s_word_ends_a_doubt(doubted: Story, decision: PersonDecision, state: str) -> None:
    assert doubted.resolve(decision, note="looked at the bank") == Word(True)
    found = doubted.record
    assert (found.state, found.decision, found.decided_by) == (state, decision, "ANNA")
    assert (found.result, found.seal, found.settled_at) == (None, None, None)
    assert found.request == doubted.write.request


def test_the_result_that_a_person_gives_is_the_effect_s(doubted: Story) -> None:
    assert doubted.resolve(result=GIVEN).counts
    assert (doubted.record.result, doubted.record.seal) == (GIVEN, None)
    assert (doubted.record.done_for is not None, doubted.record.decision) == (True, "happened")


def test_a_result_may_come_with_a_seal_and_lie_in_the_artifact_store(doubted: Story) -> None:
    assert doubted.resolve(result=Stored(sha256=b"a" * 32), seal=b"seal").counts
    assert (doubted.record.result, doubted.record.seal) == (Stored(sha256=b"a" * 32), b"seal")


def test_what_did_not_happen_has_no_result(doubted: Story) -> None:
    with pytest.raises(ValueError, match="no result"):
        doubted.resolve("did_not_happen", result=GIVEN)
    assert doubted.record.state is EffectState.IN_DOUBT


def test_a_late_outcome_does_not_change_the_result_that_was_given_out(doubted: Story) -> None:
    """Later steps were computed with it: every try must get the same."""
    doubted.resolve(result=GIVEN)
    settled = doubted.world.ledger.settle(doubted.write.intent_id, "succeeded", result=DONE, seal=b"s")
    assert settled == Settled(EffectState.SUCCEEDED, False)
    assert (doubted.record.result, doubted.record.seal) == (GIVEN, None)


def test_a_late_outcome_brings_the_result_that_nobody_gave(doubted: Story) -> None:
    doubted.resolve()
    doubted.world.ledger.settle(doubted.write.intent_id, "succeeded", result=DONE, seal=b"s")
    assert (doubted.record.result, doubted.record.seal) == (DONE, b"s")


def test_who_comes_second_is_told_who_was_first(doubted: Story) -> None:
    assert doubted.resolve("happened", by="ANNA").counts
    decisions: tuple[PersonDecision, ...] = ("did_not_happen", "happened")
    for decision in decisions:
        word = doubted.resolve(decision, by="BERT")
        assert not word.counts
        assert "was answered by ANNA at 20" in word.why
        assert word.why.endswith("UTC: happened")
        assert f"#{doubted.number} (charge {doubted.effect.key})" in word.why
    assert doubted.record.state is EffectState.SUCCEEDED


def test_the_same_word_of_the_same_person_is_one_word(doubted: Story) -> None:
    assert [doubted.resolve() for _ in range(3)] == [Word(True)] * 3
    assert not doubted.resolve("did_not_happen").counts


def test_of_many_words_at_once_one_counts(doubted: Story) -> None:
    barrier = threading.Barrier(6)
    words: list[tuple[str, PersonDecision, Word]] = []

    def say(by: str, decision: PersonDecision) -> None:
        number = doubted.number
        barrier.wait()
        words.append((by, decision, doubted.world.inbox.resolve(number, decision, by=by)))

    decisions: list[PersonDecision] = ["happened", "did_not_happen"] * 3
    threads = [threading.Thread(target=say, args=(f"P{n}", decision)) for n, decision in enumerate(decisions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [(by, decision, _)] = [each for each in words if each[2].counts]
    assert all(f"answered by {by}" in word.why for _, _, word in words if not word.counts)
    assert (doubted.record.decided_by, doubted.record.decision) == (by, decision)


def test_a_late_success_wins_over_a_no_which_then_does_not_stand(doubted: Story) -> None:
    assert doubted.resolve("did_not_happen").counts
    doubted.world.ledger.settle(doubted.write.intent_id, "succeeded", result=DONE)
    word = doubted.resolve("did_not_happen")
    assert (word.counts, "it happened" in word.why) == (False, True)


def test_a_live_owner_s_call_is_not_decided_over(begun: Story) -> None:
    word = begun.resolve()
    assert (word.counts, "may be at work for another" in word.why) == (False, True)
    begun.world.pass_time(TTL + 1)
    assert "may be at work for another" in begun.resolve().why  # the time-out runs from the end of the lease
    assert begun.record.state is EffectState.INTENDED


@pytest.mark.parametrize(("decision", "state"), [("happened", "succeeded"), ("did_not_happen", "failed")])
def test_an_open_call_whose_owner_is_gone_is_decided(begun: Story, decision: PersonDecision, state: str) -> None:
    begun.world.pass_time(TTL + TIMEOUT + 1)
    assert begun.resolve(decision) == Word(True)
    assert begun.record.state == state


def test_a_settled_call_is_not_decided(done: Story) -> None:
    word = done.resolve("did_not_happen")
    assert (word.counts, "has an outcome since 20" in word.why) == (False, True)
    assert done.record.state is EffectState.SUCCEEDED


def test_what_surely_did_not_happen_is_not_decided(begun: Story) -> None:
    begun.world.ledger.settle(begun.write.intent_id, "not_applied", result=None)
    assert "surely did not happen" in begun.resolve().why


def test_a_word_on_an_earlier_call_changes_nothing(doubted: Story) -> None:
    first = doubted.number
    doubted.resolve("did_not_happen")
    second = doubted.again(1)
    doubted.world.ledger.doubt(doubted.taken.lease, second.intent_id)
    word = doubted.world.inbox.resolve(first, "happened", by="BERT")
    assert (word.counts, "answered by ANNA" in word.why) == (False, True)
    assert (doubted.record.state, doubted.record.decision) == (EffectState.IN_DOUBT, None)


def test_a_word_on_a_call_that_a_later_one_followed_names_the_later_one(doubted: Story) -> None:
    first = doubted.number
    doubted.world.ledger.decide(doubted.taken.lease, doubted.write.intent_id, "retry", by="policy")
    doubted.again(1)
    word = doubted.world.inbox.resolve(first, "happened", by="BERT")
    assert (word.counts, "answered by policy" in word.why, "called again" in word.why) == (False, True, True)


@pytest.mark.parametrize("number", [0, -1, 2**62])
def test_a_number_that_nobody_gave_out(world: World, number: int) -> None:
    says = f"there is no #{number} in this ledger"
    assert world.inbox.resolve(number, "happened", by="ANNA") == Word(False, says)
    assert world.inbox.answer(number, "Approve", by="ANNA") == Word(False, says)
    assert world.inbox.release(number, by="ANNA", note="") == Word(False, says)
    assert (world.inbox.question(number), world.inbox.effect_numbered(number)) == (None, None)


def test_a_doubt_is_decided_by_its_question_s_number_too(doubted: Story) -> None:
    asked = doubted.world.ledger.ask(doubted.taken.lease, a_question(doubted.effect, doubted.write.intent_id))
    assert doubted.world.inbox.resolve(asked.number, "happened", by="ANNA").counts
    assert doubted.record.state is EffectState.SUCCEEDED


def test_a_question_about_no_call_is_not_resolved(world: World) -> None:
    asked = world.ledger.ask(start(world.ledger).lease, a_question())
    word = world.inbox.resolve(asked.number, "happened", by="ANNA")
    assert (word.counts, "one of its options" in word.why) == (False, True)


@pytest.mark.parametrize("by", ["", "  "])
def test_a_word_of_nobody_is_refused(doubted: Story, by: str) -> None:
    with pytest.raises(ValueError, match="name"):
        doubted.resolve(by=by)
    with pytest.raises(ValueError, match="name"):
        doubted.world.inbox.release(doubted.number, by=by, note="")
    with pytest.raises(ValueError, match="name"):
        doubted.world.inbox.answer(doubted.number, "x", by=by)


def test_names_and_notes_of_any_text_are_kept(doubted: Story) -> None:
    odd = "ÄNNA \x00 \ud800 '; drop table effect; --"
    assert doubted.resolve(by=odd, note=odd).counts
    assert doubted.resolve(by=odd).counts
    assert doubted.record.decided_by == "ÄNNA \N{SYMBOL FOR NULL} \\ud800 '; drop table effect; --"


# --- release ---


def test_a_release_lets_a_done_effect_be_done_once_more(done: Story) -> None:
    assert done.world.inbox.release(done.number, by="ANNA", note="sent to the wrong address") == Word(True)
    assert done.record.state is EffectState.RELEASED
    done.again(1)
    assert (done.record.repeat, done.record.decision) == (1, None)


def test_a_release_twice_is_one_and_another_person_is_told(done: Story) -> None:
    release = done.world.inbox.release
    number = done.number
    assert [release(number, by="ANNA", note="") for _ in range(2)] == [Word(True)] * 2
    word = release(number, by="BERT", note="")
    assert (word.counts, "was released by ANNA at 20" in word.why) == (False, True)


def test_a_release_of_what_was_done_meanwhile_does_not_count(done: Story) -> None:
    first = done.number
    done.world.inbox.release(first, by="ANNA", note="")
    again = done.again(1)
    done.world.ledger.settle(again.intent_id, "succeeded", result=DONE)
    word = done.world.inbox.release(first, by="BERT", note="")
    assert (word.counts, "was released by ANNA" in word.why) == (False, True)
    assert done.record.state is EffectState.SUCCEEDED


def test_a_release_of_an_earlier_call_names_the_one_that_counts(doubted: Story) -> None:
    first = doubted.number
    doubted.resolve("did_not_happen")
    again = doubted.again(1)
    doubted.world.ledger.settle(again.intent_id, "succeeded", result=DONE)
    word = doubted.world.inbox.release(first, by="ANNA", note="")
    assert (word.counts, f"that is #{doubted.number}" in word.why) == (False, True)


@pytest.mark.parametrize(
    ("state", "says"),
    [("intended", "has no outcome yet"), ("in_doubt", "say first whether"), ("failed", "nothing to release")],
)
def test_only_what_is_done_is_released(begun: Story, state: str, says: str) -> None:
    if state == "in_doubt":
        begun.world.ledger.doubt(begun.taken.lease, begun.write.intent_id)
    elif state == "failed":
        begun.world.ledger.settle(begun.write.intent_id, "not_applied", result=None)
    word = begun.world.inbox.release(begun.number, by="ANNA", note="")
    assert (word.counts, says in word.why, begun.record.state) == (False, True, state)


def test_what_a_person_held_to_have_happened_may_be_released(doubted: Story) -> None:
    doubted.resolve()
    assert doubted.world.inbox.release(doubted.number, by="BERT", note="it had not").counts
    assert isinstance(doubted.again(1), IntentWrite)


def test_an_attempt_carries_a_release_out(done: Story) -> None:
    ledger, lease = done.world.ledger, done.taken.lease
    assert [ledger.release(lease, done.write.intent_id, by="ANNA", note="n") for _ in range(2)] == [True, True]
    assert done.record.state is EffectState.RELEASED
    assert "by ANNA" in done.world.inbox.release(done.number, by="BERT", note="").why
    done.again(1)
    assert not ledger.release(lease, done.write.intent_id, by="ANNA", note="n")


@pytest.mark.parametrize("lost", ["lapsed", "let go", "superseded"])
def test_without_its_lease_an_attempt_releases_and_undoes_nothing(done: Story, lost: str) -> None:
    ledger, lease = done.world.ledger, done.taken.lease
    if lost == "lapsed":
        done.world.pass_time(TTL + 1)
    elif lost == "let go":
        ledger.let_go(lease)
    else:
        take(ledger, an_attempt(done.record.execution, 2))
    assert not ledger.release(lease, done.write.intent_id, by="ANNA", note="")
    assert not ledger.compensated(lease, done.write.intent_id)
    assert done.record.state is EffectState.SUCCEEDED


# --- compensated ---


def test_what_is_undone_may_be_done_again_with_another_key(done: Story) -> None:
    ledger, lease = done.world.ledger, done.taken.lease
    assert [ledger.compensated(lease, done.write.intent_id) for _ in range(2)] == [True, True]
    assert (done.record.state, done.record.result) == (EffectState.COMPENSATED, DONE)
    assert "was undone" in done.world.inbox.release(done.number, by="ANNA", note="").why
    done.again(1)
    assert done.record.repeat == 1
    assert not ledger.compensated(lease, done.write.intent_id)


@pytest.mark.parametrize("state", ["intended", "in_doubt", "failed", "released"])
def test_only_what_is_done_is_undone(begun: Story, state: str) -> None:
    ledger, lease, intent = begun.world.ledger, begun.taken.lease, begun.write.intent_id
    if state == "in_doubt":
        ledger.doubt(lease, intent)
    elif state == "failed":
        ledger.settle(intent, "not_applied", result=None)
    elif state == "released":
        ledger.settle(intent, "succeeded", result=None)
        ledger.release(lease, intent, by="ANNA", note="")
    assert not ledger.compensated(lease, intent)
    assert not ledger.compensated(lease, uuid4())
    assert begun.record.state == state


def test_a_late_success_of_another_call_after_an_undoing_is_a_suspected_double(doubted: Story) -> None:
    ledger = doubted.world.ledger
    doubted.resolve("did_not_happen")
    again = doubted.again(1)
    ledger.settle(again.intent_id, "succeeded", result=DONE)
    ledger.compensated(doubted.taken.lease, again.intent_id)
    assert ledger.settle(doubted.write.intent_id, "succeeded", result=DONE) == Settled(EffectState.COMPENSATED, True)


# --- questions ---


def ask(world: World, taken: Taken | None = None, **parts: Any) -> Question:
    """Ask a question of the author's own."""
    return world.ledger.ask((taken or start(world.ledger)).lease, a_question(**parts))


def test_a_question_is_kept_as_it_was_asked(world: World) -> None:
    attempt = an_attempt(an_execution(map_index=3))
    write = a_question(subject="Größe? \x00", body="line\nline", assigned_users=("ANNA", "BERT"), timeout=60.0)
    asked = world.ledger.ask(take(world.ledger, attempt).lease, write)
    assert (asked.kind, asked.name, asked.execution) == ("ask", "review", attempt.execution)
    assert (asked.subject, asked.body) == ("Größe? \N{SYMBOL FOR NULL}", write.body)
    assert (asked.options, asked.assigned_users) == (write.options, write.assigned_users)
    assert (asked.answer, asked.effect, asked.intent_id) == (None, None, None)
    assert asked.time_left == pytest.approx(60, abs=5)
    assert asked.asked_at.tzinfo is UTC
    read = world.inbox.question(asked.number)
    assert read is not None
    assert replace(read, time_left=0, asked_at=asked.asked_at) == replace(asked, time_left=0)


def test_a_question_about_an_effect_names_it(doubted: Story) -> None:
    write = a_question(doubted.effect, doubted.write.intent_id)
    asked = doubted.world.ledger.ask(doubted.taken.lease, write)
    assert (asked.kind, asked.effect, asked.intent_id) == ("doubt", doubted.effect, doubted.write.intent_id)
    assert asked.time_left is None


def test_asked_again_it_is_the_same_question_and_notes_who_asks_now(world: World) -> None:
    write = a_question(timeout=600.0)
    first, second = an_attempt(an_execution()), an_attempt(an_execution())
    asked = world.ledger.ask(take(world.ledger, first).lease, write)
    world.pass_time(100)
    again = world.ledger.ask(take(world.ledger, second).lease, replace(write, subject="Another", timeout=6_000.0))
    assert (again.number, again.subject, again.execution) == (asked.number, "Did it?", second.execution)
    assert again.time_left == pytest.approx(500, abs=5)
    world.pass_time(501)
    late = world.inbox.question(asked.number)
    assert late is not None
    assert late.time_left is not None
    assert late.time_left < 0


def test_an_answered_question_keeps_who_asked_it(world: World) -> None:
    write = a_question()
    asked = world.ledger.ask(start(world.ledger).lease, write)
    world.inbox.answer(asked.number, "Approve", by="ANNA")
    again = world.ledger.ask(start(world.ledger).lease, write)
    assert (again.number, again.execution) == (asked.number, asked.execution)
    assert again.answer is not None
    assert (again.answer.option, again.answer.by) == ("Approve", "ANNA")


def test_many_that_ask_the_same_at_once_ask_one_question(world: World) -> None:
    write, takens = a_question(), [start(world.ledger) for _ in range(6)]
    barrier = threading.Barrier(len(takens))
    asked: list[Question] = []

    def race(taken: Taken) -> None:
        barrier.wait()
        asked.append(world.ledger.ask(taken.lease, write))

    threads = [threading.Thread(target=race, args=(taken,)) for taken in takens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({question.number for question in asked}) == 1
    assert len(asked) == 6


@pytest.mark.parametrize("lost", ["lapsed", "let go", "superseded"])
def test_without_its_lease_an_attempt_asks_nothing(world: World, lost: str) -> None:
    attempt, write = an_attempt(an_execution()), a_question()
    taken = take(world.ledger, attempt)
    if lost == "lapsed":
        world.pass_time(TTL + 1)
    elif lost == "let go":
        world.ledger.let_go(taken.lease)
    else:
        take(world.ledger, an_attempt(attempt.execution, 2))
    with pytest.raises(LedgerError, match="lapsed or was taken over"):
        world.ledger.ask(taken.lease, write)
    found = world.ledger.ask(start(world.ledger).lease, write)
    assert found.execution != attempt.execution


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"options": ()}, "no options"),
        ({"bound_to": b"short"}, "32"),
        ({"kind": "doubt"}, "no intent"),
        ({"kind": "conflict"}, "no intent"),
        ({"kind": "approval"}, "no effect"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(world: World, parts: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ask(world, **parts)


def test_a_question_about_an_intent_that_is_not_there_is_refused(world: World) -> None:
    with pytest.raises(LedgerError):
        world.ledger.ask(start(world.ledger).lease, a_question(an_effect(), uuid4()))


# --- answers ---


def test_an_answer_is_kept_with_who_and_when(world: World) -> None:
    asked = ask(world)
    assert world.inbox.answer(asked.number, "Reject", by="ANNA", note="too dear") == Word(True)
    found = world.inbox.question(asked.number)
    assert found is not None
    assert found.answer is not None
    assert (found.answer.option, found.answer.by, found.answer.note) == ("Reject", "ANNA", "too dear")
    assert isinstance(found.answer.at, datetime)
    assert found.answer.at.tzinfo is UTC


def test_the_first_answer_stands_and_the_second_person_is_told(world: World) -> None:
    asked = ask(world)
    answer = world.inbox.answer
    assert [answer(asked.number, "Approve", by="ANNA") for _ in range(2)] == [Word(True)] * 2
    for option, by in (("Reject", "BERT"), ("Approve", "BERT"), ("Reject", "ANNA")):
        word = answer(asked.number, option, by=by)
        assert (word.counts, word.why.endswith("UTC: Approve")) == (False, True)
        assert f"#{asked.number} was answered by ANNA at 20" in word.why


def test_of_many_answers_at_once_one_counts(world: World) -> None:
    asked, barrier = ask(world), threading.Barrier(6)
    words: list[tuple[str, Word]] = []

    def say(by: str) -> None:
        barrier.wait()
        words.append((by, world.inbox.answer(asked.number, "Approve", by=by)))

    threads = [threading.Thread(target=say, args=(f"P{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [first] = [by for by, word in words if word.counts]
    assert all(f"answered by {first}" in word.why for by, word in words if by != first)


def test_an_answer_that_is_no_option_changes_nothing(world: World) -> None:
    asked = ask(world)
    word = world.inbox.answer(asked.number, "approve", by="ANNA")
    assert (word.counts, "'approve' is no option" in word.why, "'Approve', 'Reject'" in word.why) == (False, True, True)
    assert world.inbox.answer(asked.number, "Approve", by="BERT").counts


def test_the_task_that_waits_for_a_doubt_is_told_to_fail_by_either_number(doubted: Story) -> None:
    world = doubted.world
    for number_of in ("intent", "question"):
        write = a_question(doubted.effect, doubted.write.intent_id)
        asked = world.ledger.ask(doubted.taken.lease, write)
        number = doubted.number if number_of == "intent" else asked.number
        assert world.inbox.answer(number, "Fail the task", by="ANNA").counts
        again = world.ledger.ask(doubted.taken.lease, write)
        assert again.answer is not None
    assert doubted.record.state is EffectState.IN_DOUBT
    assert doubted.resolve().counts


def test_a_doubt_for_which_no_task_waits_has_nothing_to_answer(doubted: Story) -> None:
    word = doubted.world.inbox.answer(doubted.number, "Fail the task", by="ANNA")
    assert (word.counts, "no task waits" in word.why) == (False, True)


def test_a_question_is_not_released(doubted: Story) -> None:
    asked = doubted.world.ledger.ask(doubted.taken.lease, a_question(doubted.effect, doubted.write.intent_id))
    word = doubted.world.inbox.release(asked.number, by="ANNA", note="")
    assert (word.counts, f"about #{doubted.number}" in word.why) == (False, True)


# --- what waits ---


def test_a_doubt_waits_until_it_is_decided(doubted: Story) -> None:
    entry = doubted.entry()
    assert entry is not None
    assert (entry.number, entry.question) == (doubted.number, None)
    assert entry.effect is not None
    assert (entry.effect.state, entry.since) == (EffectState.IN_DOUBT, entry.effect.intended_at)
    doubted.resolve("did_not_happen")
    assert doubted.entry() is None


@pytest.mark.parametrize("outcome", ["succeeded", "not_applied"])
def test_a_doubt_that_a_late_outcome_ends_waits_no_more(doubted: Story, outcome: Any) -> None:
    doubted.world.ledger.ask(doubted.taken.lease, a_question(doubted.effect, doubted.write.intent_id))
    doubted.world.ledger.settle(doubted.write.intent_id, outcome, result=None)
    assert doubted.entry() is None
    waiting = doubted.world.inbox.waiting(after=doubted.number, limit=1_000)
    assert all(entry.question is None or entry.question.effect != doubted.effect for entry in waiting)


def test_a_doubt_waits_with_the_question_of_the_task_that_asked_last(doubted: Story) -> None:
    ledger = doubted.world.ledger
    for _ in range(2):
        asked = ledger.ask(doubted.taken.lease, a_question(doubted.effect, doubted.write.intent_id))
    entry = doubted.entry()
    assert entry is not None
    assert entry.question is not None
    assert (entry.number, entry.question.number) == (doubted.number, asked.number)
    doubted.world.inbox.answer(doubted.number, "Fail the task", by="ANNA")
    entry = doubted.entry()
    assert entry is not None
    assert entry.question is None


def test_a_question_waits_until_it_is_answered(world: World) -> None:
    asked = ask(world)

    def waits() -> list[InboxEntry]:
        return [entry for entry in world.inbox.waiting(after=asked.number - 1) if entry.number == asked.number]

    [entry] = waits()
    assert (entry.effect, entry.since) == (None, asked.asked_at)
    assert entry.question is not None
    assert entry.question.subject == asked.subject
    world.inbox.answer(asked.number, "Approve", by="ANNA")
    assert waits() == []


def test_an_approval_asked_again_about_another_request_waits_once(world: World) -> None:
    effect, taken = an_effect(), start(world.ledger)
    asked = [
        world.ledger.ask(taken.lease, a_question(effect, kind="approval", options=("Approve", "Reject")))
        for _ in range(3)
    ]
    numbers = {question.number for question in asked}
    waiting = [entry.number for entry in world.inbox.waiting(after=asked[0].number - 1) if entry.number in numbers]
    assert waiting == [asked[-1].number]


def test_an_approval_whose_request_came_back_is_the_one_that_waits(world: World) -> None:
    """A template was changed and changed back while nobody answered: the task waits for the first question again."""
    taken = start(world.ledger)
    first, second = (a_question(an_effect("k"), kind="approval", options=("Approve", "Reject")) for _ in range(2))
    asked = [world.ledger.ask(taken.lease, question) for question in (first, second, first)]
    assert [question.number for question in asked] == [asked[0].number, asked[1].number, asked[0].number]
    waiting = [entry.number for entry in world.inbox.waiting(after=asked[0].number - 1)]
    assert (asked[0].number in waiting, asked[1].number in waiting) == (True, False)
    assert not world.inbox.answer(asked[1].number, "Approve", by="ann").counts
    assert world.inbox.answer(asked[0].number, "Approve", by="ann").counts


@pytest.mark.parametrize(
    ("later", "stands"),
    [({"try_number": 2}, True), ({"try_number": 2, "max_tries": 4, "clear_number": 1}, False)],
)
def test_what_was_asked_before_a_clear_takes_no_answer(world: World, later: dict[str, int], stands: bool) -> None:
    """Nobody waits for it: the cleared task asks anew, under another number."""
    execution = an_execution()
    before = ask(world, take(world.ledger, an_attempt(execution)))
    taken = take(world.ledger, an_attempt(execution, **later))
    word = world.inbox.answer(before.number, "Approve", by="ann")
    assert word.counts is stands
    if not stands:
        assert "asked no more" in word.why
        after = ask(world, taken)
        waiting = [entry.number for entry in world.inbox.waiting(after=before.number - 1)]
        assert before.number not in waiting
        assert after.number in waiting
        assert world.inbox.answer(after.number, "Approve", by="ann").counts


def test_two_executions_that_ask_about_one_effect_both_wait(world: World) -> None:
    effect = an_effect()
    asked = [
        world.ledger.ask(start(world.ledger).lease, a_question(effect, kind="approval", options=("Approve", "Reject")))
        for _ in range(2)
    ]
    waiting = [entry.number for entry in world.inbox.waiting(after=asked[0].number - 1)]
    assert {question.number for question in asked} <= set(waiting)
    for question in asked:
        assert world.inbox.answer(question.number, "Approve", by="ann").counts


def test_a_call_in_hand_does_not_wait(begun: Story) -> None:
    assert begun.entry() is None
    begun.world.pass_time(TTL + 1)
    assert begun.entry() is None  # its time-out may still run


@pytest.mark.parametrize("end", ["killed", "failed", "paused"])
def test_an_open_call_that_nobody_will_visit_waits_once_its_owner_is_gone(begun: Story, end: str) -> None:
    if end != "killed":
        begun.world.ledger.finish(begun.taken.lease, ExecutionState(end), result=None)
    assert begun.entry() is None
    begun.world.pass_time(TTL + TIMEOUT + 1)
    entry = begun.entry()
    assert entry is not None
    assert entry.effect is not None
    assert (entry.effect.state, entry.number) == (EffectState.INTENDED, begun.number)
    assert begun.resolve().counts
    assert begun.entry() is None


def test_what_waits_is_paged_by_number(world: World) -> None:
    taken = start(world.ledger)
    numbers = [ask(world, taken).number for _ in range(5)]
    seen: list[int] = []
    after = numbers[0] - 1
    while page := world.inbox.waiting(limit=2, after=after):
        assert len(page) <= 2
        seen += [entry.number for entry in page]
        after = page[-1].number
    assert seen == sorted(seen)
    assert set(numbers) <= set(seen)


# --- lists of effects ---


def test_effects_are_listed_by_run_name_and_key(world: World) -> None:
    run = f"manual__{uuid4()}"
    takens = [start(world.ledger, run_id=run, map_index=index) for index in range(2)]
    effects = [an_effect(), an_effect(), an_effect(name="receipt")]
    for taken, effect in zip([*takens, takens[0]], effects, strict=True):
        world.ledger.intend(taken.lease, an_intent(effect))

    def listed(**filters: Any) -> list[EffectId]:
        return [record.effect for record in world.inbox.effects(**filters)]

    assert listed(run_id=run) == effects
    assert listed(run_id=run, dag_id="billing") == effects
    assert listed(run_id=run, dag_id="other") == []
    assert listed(run_id=run, name="receipt") == effects[2:]
    assert listed(key=effects[1].key) == [effects[1]]
    assert listed(key=effects[1].key, name="receipt") == []
    assert listed(run_id=run, limit=2) == effects[:2]
    second = world.ledger.effect(effects[1])
    assert second is not None
    assert listed(run_id=run, after=second.number) == effects[2:]


def test_an_effect_that_was_done_again_comes_last(world: World) -> None:
    run = f"manual__{uuid4()}"
    taken, effects = start(world.ledger, run_id=run), [an_effect(), an_effect()]
    for effect in effects:
        write = an_intent(effect)
        world.ledger.intend(taken.lease, write)
        world.ledger.settle(write.intent_id, "not_applied", result=None)
    world.ledger.intend(taken.lease, an_intent(effects[0], 1))
    assert [record.effect for record in world.inbox.effects(run_id=run)] == effects[::-1]


# --- ages ---


def test_an_effect_s_age_runs_from_the_first_call_with_its_key(done: Story) -> None:
    done.world.pass_time(100)
    assert done.record.age == pytest.approx(100, abs=5)
    assert done.record.done_for == pytest.approx(100, abs=5)
    done.world.inbox.release(done.number, by="ANNA", note="")
    done.world.ledger.beat(done.taken.lease, ttl=TTL, idle=0, step=None)
    again = done.again(1)
    assert (done.record.age < 5, done.record.done_for) == (True, None)
    done.world.ledger.settle(again.intent_id, "not_applied", result=None)
    done.world.pass_time(10)
    third = done.again(2)
    assert done.record.age == pytest.approx(10, abs=5)
    done.world.ledger.settle(third.intent_id, "succeeded", result=None)
    assert done.record.done_for == pytest.approx(0, abs=5)


def test_a_question_with_assigned_users_takes_a_word_of_theirs_alone(world: World) -> None:
    write = a_question(assigned_users=("ann", "bert"))
    number = world.ledger.ask(start(world.ledger).lease, write).number
    refused = world.inbox.answer(number, "Approve", by="carl")
    assert not refused.counts
    assert refused.why == f"#{number} is for ann, bert to answer, and you are carl"
    found = world.inbox.question(number)
    assert found is not None
    assert found.answer is None
    # The id decides: a name that reads like one is none.
    assert not world.inbox.answer(number, "Approve", by="ann", user="carl").counts
    assert world.inbox.answer(number, "Approve", by="Ann B. (ann)", user="ann").counts
    assert not world.inbox.answer(number, "Reject", by="bert").counts


def test_a_doubt_that_an_assigned_user_is_asked_about_takes_a_word_of_theirs_alone(begun: Story) -> None:
    world, taken, effect, write = begun.world, begun.taken, begun.effect, begun.write
    assert world.ledger.doubt(taken.lease, write.intent_id)
    number = world.ledger.ask(taken.lease, a_question(effect, write.intent_id, assigned_users=("ann",))).number
    for which in (begun.number, number):
        for decision in ("happened", "did_not_happen"):
            refused = world.inbox.resolve(which, decision, by="carl")
            assert not refused.counts
            assert "is for ann to answer, and you are carl" in refused.why
        assert not world.inbox.answer(which, "Fail the task", by="carl").counts
    assert begun.record.state is EffectState.IN_DOUBT
    assert world.inbox.resolve(begun.number, "happened", by="Ann", user="ann").counts
    assert begun.record.state.value == "succeeded"


def test_a_doubt_is_anybodys_once_no_task_waits_for_the_word(begun: Story) -> None:
    world, taken, effect, write = begun.world, begun.taken, begun.effect, begun.write
    assert world.ledger.doubt(taken.lease, write.intent_id)
    asked = world.ledger.ask(taken.lease, a_question(effect, write.intent_id, assigned_users=("ann",)))
    assert world.inbox.answer(asked.number, "Fail the task", by="ann").counts
    assert world.inbox.resolve(begun.number, "did_not_happen", by="carl").counts


def test_of_two_tasks_that_wait_for_one_word_each_ones_users_may_give_it(begun: Story) -> None:
    world, taken, effect, write = begun.world, begun.taken, begun.effect, begun.write
    assert world.ledger.doubt(taken.lease, write.intent_id)
    world.ledger.ask(taken.lease, a_question(effect, write.intent_id, assigned_users=("ann",)))
    world.ledger.ask(taken.lease, a_question(effect, write.intent_id, assigned_users=("bert",)))
    assert not world.inbox.resolve(begun.number, "happened", by="carl").counts
    assert world.inbox.resolve(begun.number, "happened", by="ann").counts
