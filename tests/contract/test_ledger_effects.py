"""
The contract of the effect protocol, as the checked model has it: fence, intent number, outcomes that always count.

Each test names the row of the model's table, or the assertion, that it stands for where there is one.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_aiflow.durable.effect import (
    AlreadyThere,
    Decision,
    EffectRecord,
    EffectState,
    FenceMoved,
    Intended,
    IntentAnswer,
    IntentWrite,
    LeaseLapsed,
    Refusals,
    Settled,
)
from airflow_aiflow.durable.execution import ExecutionState, Lease, Taken
from airflow_aiflow.durable.identity import EffectId, person_undo
from airflow_aiflow.durable.ports import Ledger
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import LedgerError
from tests.contract.ledger_world import (
    TIMEOUT,
    TTL,
    World,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
    start,
    take,
)

DONE = Stored(inline=b'{"id":"ch_1"}')


def read(ledger: Ledger, effect: EffectId) -> EffectRecord:
    found = ledger.effect(effect)
    assert found is not None
    return found


def release(world: World, effect: EffectId) -> bool:
    """Let a person release a done effect."""
    return world.inbox.release(read(world.ledger, effect).number, by="ANNA", note="sent to the wrong address").counts


def timeless(record: EffectRecord) -> EffectRecord:
    """Leave out what changes from one reading to the next."""
    return replace(record, gone_in=0.0, age=0.0, done_for=None)


def intend(ledger: Ledger, taken: Taken, effect: EffectId, seen: int = 0) -> IntentWrite:
    """Write an intent that must be taken."""
    write = an_intent(effect, seen)
    answer = ledger.intend(taken.lease, write)
    assert answer == Intended(write.intent_id, seen + 1, read(ledger, effect).repeat)
    return write


def next_attempt(world: World, before: Taken, effect: EffectId, number: int = 2) -> Taken:
    """Let the owner's lease and time-out pass, and take over as a retry."""
    world.pass_time(TTL + TIMEOUT + 1)
    return take(world.ledger, an_attempt(read(world.ledger, effect).execution, number))


def decided_no(world: World, taken: Taken, write: IntentWrite, number: int = 2) -> Taken:
    """Bring an open intent to ``failed`` by doubt and a no, and give the attempt that did."""
    newcomer = next_attempt(world, taken, write.effect, number)
    assert world.ledger.doubt(newcomer.lease, write.intent_id)
    assert world.ledger.decide(newcomer.lease, write.intent_id, "did_not_happen", by="person")
    return newcomer


# --- intend ---


def test_nobody_intended_what_is_not_there(ledger: Ledger) -> None:
    assert ledger.effect(an_effect()) is None


def test_an_intent_is_there_before_the_call(ledger: Ledger) -> None:
    attempt = an_attempt(an_execution(map_index=4), 3)
    taken, effect = take(ledger, attempt), an_effect()
    write = replace(an_intent(effect), generation=5, request=Stored(sha256=b"r" * 32))
    assert ledger.intend(taken.lease, write) == Intended(write.intent_id, 1, 0)
    found = read(ledger, effect)
    assert (found.effect, found.state, found.repeat, found.intent_no) == (effect, EffectState.INTENDED, 0, 1)
    assert (found.intent_id, found.request, found.request_fp) == (write.intent_id, write.request, write.request_fp)
    assert (found.result, found.seal, found.settled_at) == (None, None, None)
    assert (found.execution, found.lease, found.generation) == (attempt.execution, taken.lease, 5)
    assert (found.attempt_number, found.owner) == (1, attempt.owner)
    assert (found.live, found.duplicate_suspected) == (True, False)
    assert found.gone_in == pytest.approx(TTL + TIMEOUT, abs=5)


def test_the_same_intent_again_is_the_same_intent(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert ledger.intend(taken.lease, write) == Intended(write.intent_id, 1, 0)
    assert read(ledger, effect).intent_no == 1


def test_the_same_intent_is_not_called_again_once_it_is_settled(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.settle(write.intent_id, "not_applied", result=None)
    assert isinstance(ledger.intend(taken.lease, write), AlreadyThere)


def test_another_intent_on_an_open_effect_finds_it(ledger: Ledger) -> None:
    one, other, effect = start(ledger), start(ledger), an_effect()
    write = intend(ledger, one, effect)
    for lease, seen in ((one.lease, 0), (one.lease, 1), (other.lease, 1)):
        answer = ledger.intend(lease, an_intent(effect, seen))
        assert isinstance(answer, AlreadyThere)
        assert (answer.found.intent_id, answer.found.state, answer.found.live) == (
            write.intent_id,
            EffectState.INTENDED,
            True,
        )


def test_a_lapsed_lease_is_told_from_a_moved_fence(world: World) -> None:
    ledger, attempt, effect = world.ledger, an_attempt(an_execution()), an_effect()
    first = take(ledger, attempt)
    world.pass_time(TTL + 1)
    assert ledger.intend(first.lease, an_intent(effect)) == LeaseLapsed()
    ledger.beat(first.lease, ttl=TTL, idle=0, step=None)
    assert isinstance(ledger.intend(first.lease, an_intent(effect)), Intended)
    take(ledger, an_attempt(attempt.execution, 2))
    assert ledger.intend(first.lease, an_intent(an_effect())) == FenceMoved()


def test_a_superseded_attempt_starts_nothing(ledger: Ledger) -> None:
    """P5, row "fence test removed"."""
    attempt, effect = an_attempt(an_execution()), an_effect()
    first = take(ledger, attempt)
    take(ledger, an_attempt(attempt.execution, 2))
    assert ledger.intend(first.lease, an_intent(effect)) == FenceMoved()
    assert ledger.effect(effect) is None


@pytest.mark.parametrize("end", ["let_go", "finish"])
def test_who_gave_the_lease_back_starts_nothing(ledger: Ledger, end: str) -> None:
    taken, effect = start(ledger), an_effect()
    if end == "finish":
        ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
    else:
        ledger.let_go(taken.lease)
    assert ledger.intend(taken.lease, an_intent(effect)) == FenceMoved()
    assert ledger.effect(effect) is None


def test_a_lease_of_nobody_starts_nothing(ledger: Ledger) -> None:
    taken = start(ledger)
    assert ledger.intend(Lease(taken.lease.execution_pk, 2), an_intent(an_effect())) == FenceMoved()


def test_no_intent_on_a_succeeded_effect(ledger: Ledger) -> None:
    """P2."""
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.settle(write.intent_id, "succeeded", result=DONE, seal=b"seal")
    for seen in (0, 1, 2):
        answer = ledger.intend(taken.lease, an_intent(effect, seen))
        assert isinstance(answer, AlreadyThere)
        assert (answer.found.state, answer.found.result, answer.found.seal) == (EffectState.SUCCEEDED, DONE, b"seal")


def test_a_failed_effect_is_intended_again_on_the_number_that_was_seen(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert ledger.settle(write.intent_id, "not_applied", result=None) == Settled(EffectState.FAILED, False)
    stale = ledger.intend(taken.lease, an_intent(effect, 0))
    assert isinstance(stale, AlreadyThere)
    again = an_intent(effect, 1, b'{"cents":1300}')
    assert ledger.intend(taken.lease, again) == Intended(again.intent_id, 2, 0)
    found = read(ledger, effect)
    assert (found.intent_no, found.intent_id, found.request) == (2, again.intent_id, again.request)


def test_another_execution_may_take_a_failed_effect(ledger: Ledger) -> None:
    one, other, effect = start(ledger), start(ledger), an_effect()
    write = intend(ledger, one, effect)
    ledger.settle(write.intent_id, "not_applied", result=None)
    again = intend(ledger, other, effect, 1)
    assert read(ledger, effect).lease == other.lease
    assert [record.intent_id for record in ledger.recorded(other.lease, 1).effects] == [again.intent_id]
    assert list(ledger.recorded(one.lease, 1).effects) == []


def test_a_task_replays_what_persons_took_back_of_it(ledger: Ledger) -> None:
    execution, undo = an_execution(), an_effect(name="charge/undo")
    task, sibling = take(ledger, an_attempt(execution)), take(ledger, an_attempt(an_execution()))
    person = take(ledger, an_attempt(person_undo(execution)))
    write = intend(ledger, person, undo)
    assert [record.intent_id for record in ledger.recorded(task.lease, 1).effects] == [write.intent_id]
    assert list(ledger.recorded(sibling.lease, 1).effects) == []


def test_of_many_intents_one_is_written(ledger: Ledger) -> None:
    takens, effect = [start(ledger) for _ in range(6)], an_effect()
    barrier = threading.Barrier(len(takens))
    answers: list[IntentAnswer] = []

    def race(taken: Taken) -> None:
        write = an_intent(effect)
        barrier.wait()
        answers.append(ledger.intend(taken.lease, write))

    threads = [threading.Thread(target=race, args=(taken,)) for taken in takens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [won] = [answer for answer in answers if isinstance(answer, Intended)]
    found = [answer.found.intent_id for answer in answers if isinstance(answer, AlreadyThere)]
    assert found == [won.intent_id] * 5


def test_names_and_scopes_are_three_columns(ledger: Ledger) -> None:
    taken, key = start(ledger), f"order/{uuid4()}"
    effects = [
        an_effect(key),
        an_effect(key, name="receipt"),
        an_effect(key, namespace="run:billing/r1"),
        an_effect(f"e/{key}", name="charg"),
        an_effect(key[1:], name=f"charge{key[0]}"),
    ]
    for effect in effects:
        assert isinstance(ledger.intend(taken.lease, an_intent(effect)), Intended)
    assert {record.effect for record in ledger.recorded(taken.lease, 1).effects} == set(effects)


@pytest.mark.parametrize(
    "key", ["k" * 512, "😀" * 512, "  as written  ", "'; drop table effect; --", "%s %(x)s", "İi̇ß"]
)
def test_odd_keys_are_kept_as_written(ledger: Ledger, key: str) -> None:
    taken = start(ledger)
    effect = EffectId(f"run:{'%F0%9F%98%80' * 250}/{uuid4()}", "größe 😀" * 30, key)
    write = intend(ledger, taken, effect)
    assert read(ledger, effect).effect == effect
    assert isinstance(ledger.intend(taken.lease, replace(write, intent_id=uuid4())), AlreadyThere)


@pytest.mark.parametrize("key", ["", "k" * 513])
def test_a_key_of_no_fit_length_is_refused(ledger: Ledger, key: str) -> None:
    taken = start(ledger)
    with pytest.raises(LedgerError, match="refused"):
        ledger.intend(taken.lease, an_intent(EffectId("dag:x", "charge", key)))


def test_payloads_of_any_bytes_come_back(ledger: Ledger) -> None:
    taken, effect, odd = start(ledger), an_effect(), bytes(range(256)) * 64
    write = replace(an_intent(effect, request=odd), request=Stored(inline=odd))
    ledger.intend(taken.lease, write)
    ledger.settle(write.intent_id, "succeeded", result=Stored(inline=b"\x00" + odd), seal=b"\x00")
    found = read(ledger, effect)
    assert (found.request.inline, found.result, found.seal) == (odd, Stored(inline=b"\x00" + odd), b"\x00")


# --- settle ---


def test_a_success_is_settled_with_its_result(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)
    found = read(ledger, effect)
    assert (found.state, found.result) == (EffectState.SUCCEEDED, DONE)
    assert found.settled_at is not None


def test_a_success_may_have_its_result_in_the_artifact_store_or_none(ledger: Ledger) -> None:
    taken = start(ledger)
    for result in (Stored(sha256=b"a" * 32), None):
        effect = an_effect()
        ledger.settle(intend(ledger, taken, effect).intent_id, "succeeded", result=result)
        assert read(ledger, effect).result == result


def test_an_outcome_repeated_after_a_lost_answer_is_once(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.settle(write.intent_id, "succeeded", result=DONE)
    settled_at = read(ledger, effect).settled_at
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)
    assert read(ledger, effect).settled_at == settled_at


def test_a_second_outcome_changes_nothing(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.settle(write.intent_id, "succeeded", result=DONE)
    assert ledger.settle(write.intent_id, "not_applied", result=None) == Settled(EffectState.SUCCEEDED, False)
    assert ledger.settle(write.intent_id, "succeeded", result=None).state is EffectState.SUCCEEDED
    assert read(ledger, effect).result == DONE


def test_an_outcome_counts_from_a_superseded_attempt(ledger: Ledger) -> None:
    """P3: an outcome that a live process brings is kept."""
    attempt, effect = an_attempt(an_execution()), an_effect()
    first = take(ledger, attempt)
    write = intend(ledger, first, effect)
    take(ledger, an_attempt(attempt.execution, 2))
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)


def test_an_outcome_counts_after_the_lease_and_after_the_end(world: World) -> None:
    taken, effect = start(world.ledger), an_effect()
    write = intend(world.ledger, taken, effect)
    world.ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    world.pass_time(10 * TTL)
    assert world.ledger.settle(write.intent_id, "succeeded", result=DONE).state is EffectState.SUCCEEDED


def test_a_late_success_moves_a_doubt(world: World) -> None:
    """Row "late outcomes refused"."""
    taken, effect = start(world.ledger), an_effect()
    write = intend(world.ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    assert world.ledger.doubt(newcomer.lease, write.intent_id)
    assert world.ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)


def test_a_late_refusal_ends_a_doubt(world: World) -> None:
    taken, effect = start(world.ledger), an_effect()
    write = intend(world.ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    world.ledger.doubt(newcomer.lease, write.intent_id)
    assert world.ledger.settle(write.intent_id, "not_applied", result=None) == Settled(EffectState.FAILED, False)


def test_a_late_success_overrides_a_person_s_no(world: World) -> None:
    taken, effect = start(world.ledger), an_effect()
    write = intend(world.ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    assert world.ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)
    assert isinstance(world.ledger.intend(newcomer.lease, an_intent(effect, 1)), AlreadyThere)


def test_a_late_failure_moves_nothing_but_its_own_current_intent(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    again = intend(ledger, newcomer, effect, 1)
    assert ledger.settle(write.intent_id, "not_applied", result=None) == Settled(EffectState.INTENDED, False)
    found = read(ledger, effect)
    assert (found.state, found.intent_id, found.intent_no) == (EffectState.INTENDED, again.intent_id, 2)


def test_a_late_failure_leaves_a_success_alone(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    again = intend(ledger, newcomer, effect, 1)
    ledger.settle(again.intent_id, "succeeded", result=DONE)
    assert ledger.settle(write.intent_id, "not_applied", result=None) == Settled(EffectState.SUCCEEDED, False)


@pytest.mark.parametrize("doubted", [False, True])
def test_a_late_success_beside_a_newer_open_intent_is_a_suspected_double(world: World, doubted: bool) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    again = intend(ledger, newcomer, effect, 1)
    if doubted:
        assert ledger.doubt(newcomer.lease, again.intent_id)
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, True)
    found = read(ledger, effect)
    # What readers get is the request and the result of the intent that succeeded, under the current number.
    assert (found.intent_id, found.result, found.intent_no) == (write.intent_id, DONE, 2)
    assert (found.lease, found.attempt_number) == (taken.lease, 1)
    assert found.duplicate_suspected


@pytest.mark.parametrize("outcome", ["succeeded", "not_applied"])
def test_the_newer_intent_s_own_outcome_is_kept_and_frees_nothing(world: World, outcome: str) -> None:
    """A refused second call must not open an effect whose first call was applied after all."""
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    again = intend(ledger, newcomer, effect, 1)
    ledger.settle(write.intent_id, "succeeded", result=DONE)
    settled = (
        ledger.settle(again.intent_id, "succeeded", result=Stored(inline=b'"second"'))
        if outcome == "succeeded"
        else ledger.settle(again.intent_id, "not_applied", result=None)
    )
    assert settled == Settled(EffectState.SUCCEEDED, True)
    assert read(ledger, effect).result == DONE
    assert isinstance(ledger.intend(newcomer.lease, an_intent(effect, 2)), AlreadyThere)


def test_a_late_success_after_a_newer_success_is_a_suspected_double(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    again = intend(ledger, newcomer, effect, 1)
    ledger.settle(again.intent_id, "succeeded", result=DONE)
    late = Stored(inline=b'"late"')
    assert ledger.settle(write.intent_id, "succeeded", result=late) == Settled(EffectState.SUCCEEDED, True)
    assert read(ledger, effect).result == DONE


def test_two_late_successes_of_two_refused_intents_are_a_suspected_double(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    again = intend(ledger, newcomer, effect, 1)
    decided_no(world, newcomer, again, 3)
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)
    assert ledger.settle(again.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, True)


def test_a_late_success_of_what_was_held_to_have_happened_confirms_it(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    assert ledger.decide(newcomer.lease, write.intent_id, "happened", by="reconcile")
    assert read(ledger, effect).result is None
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)
    assert read(ledger, effect).result == DONE


def test_an_outcome_of_nobody_is_an_error(ledger: Ledger) -> None:
    lost = uuid4()
    with pytest.raises(LedgerError, match=str(lost)):
        ledger.settle(lost, "succeeded", result=None)


def test_a_result_of_a_refused_call_is_refused(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    with pytest.raises(LedgerError, match="refused"):
        ledger.settle(write.intent_id, "not_applied", result=DONE)
    assert read(ledger, effect).state is EffectState.INTENDED


# --- a wished repeat ---


def test_a_released_effect_is_intended_as_a_new_repeat(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.settle(write.intent_id, "succeeded", result=DONE)
    assert release(world, effect)
    found = read(ledger, effect)
    assert (found.state, found.result, found.repeat) == (EffectState.RELEASED, DONE, 0)
    again = an_intent(effect, 1)
    assert ledger.intend(taken.lease, again) == Intended(again.intent_id, 2, 1)
    found = read(ledger, effect)
    assert (found.state, found.result, found.repeat, found.intent_no) == (EffectState.INTENDED, None, 1, 2)
    # A retry of the repeat keeps its number, which makes the target's key.
    ledger.settle(again.intent_id, "not_applied", result=None)
    third = an_intent(effect, 2)
    assert ledger.intend(taken.lease, third) == Intended(third.intent_id, 3, 1)


def test_a_late_success_of_an_earlier_repeat_does_not_stand_for_the_wished_one(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    second = intend(ledger, newcomer, effect, 1)
    ledger.settle(second.intent_id, "succeeded", result=DONE)
    assert release(world, effect)
    third = an_intent(effect, 2)
    assert ledger.intend(newcomer.lease, third) == Intended(third.intent_id, 3, 1)
    # The first was applied beside the second: a double, but not of the third.
    assert ledger.settle(write.intent_id, "succeeded", result=None) == Settled(EffectState.INTENDED, True)
    assert ledger.settle(third.intent_id, "not_applied", result=None) == Settled(EffectState.FAILED, True)


def test_a_late_success_after_a_release_is_a_suspected_double(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    second = intend(ledger, newcomer, effect, 1)
    ledger.settle(second.intent_id, "succeeded", result=DONE)
    assert release(world, effect)
    assert ledger.settle(write.intent_id, "succeeded", result=None) == Settled(EffectState.RELEASED, True)


def test_a_late_success_of_what_was_held_to_have_happened_confirms_it_after_a_release(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    ledger.decide(newcomer.lease, write.intent_id, "happened", by="person")
    assert release(world, effect)
    again = intend(ledger, newcomer, effect, 1)
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.INTENDED, False)
    assert read(ledger, effect).intent_id == again.intent_id


# --- doubt ---


def test_a_live_owner_s_intent_is_not_doubted(ledger: Ledger) -> None:
    one, other, effect = start(ledger), start(ledger), an_effect()
    write = intend(ledger, one, effect)
    assert not ledger.doubt(other.lease, write.intent_id)
    assert read(ledger, effect).state is EffectState.INTENDED


def test_another_execution_may_doubt_once_the_lease_lapsed(world: World) -> None:
    ledger, one, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, one, effect)
    world.pass_time(TTL + 1)
    assert ledger.doubt(start(ledger).lease, write.intent_id)
    assert read(ledger, effect).state is EffectState.IN_DOUBT


def test_an_effect_in_doubt_takes_no_intent(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.doubt(taken.lease, write.intent_id)
    for seen in (0, 1, 2):
        assert isinstance(ledger.intend(taken.lease, an_intent(effect, seen)), AlreadyThere)
    # Nor is the doubted call made after all.
    assert isinstance(ledger.intend(taken.lease, write), AlreadyThere)


def test_an_attempt_may_doubt_its_own_call(ledger: Ledger) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert ledger.doubt(taken.lease, write.intent_id)
    assert ledger.doubt(taken.lease, write.intent_id)
    assert read(ledger, effect).state is EffectState.IN_DOUBT


def test_a_doubt_needs_a_live_lease(world: World) -> None:
    ledger, attempt, effect = world.ledger, an_attempt(an_execution()), an_effect()
    first = take(ledger, attempt)
    write = intend(ledger, first, effect)
    second = take(ledger, an_attempt(attempt.execution, 2))
    assert not ledger.doubt(first.lease, write.intent_id)
    world.pass_time(TTL + 1)
    assert not ledger.doubt(second.lease, write.intent_id)
    ledger.beat(second.lease, ttl=TTL, idle=0, step=None)
    assert ledger.doubt(second.lease, write.intent_id)


def test_only_the_current_open_intent_is_doubted(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = decided_no(world, taken, write)
    assert not ledger.doubt(newcomer.lease, write.intent_id)
    again = intend(ledger, newcomer, effect, 1)
    assert not ledger.doubt(newcomer.lease, write.intent_id)
    ledger.settle(again.intent_id, "succeeded", result=DONE)
    assert not ledger.doubt(newcomer.lease, again.intent_id)
    assert not ledger.doubt(newcomer.lease, uuid4())
    assert read(ledger, effect).state is EffectState.SUCCEEDED


# --- decide ---


@pytest.mark.parametrize(
    ("decision", "state"),
    [("happened", EffectState.SUCCEEDED), ("did_not_happen", EffectState.FAILED), ("retry", EffectState.FAILED)],
)
def test_a_decision_moves_a_doubt(world: World, decision: Decision, state: EffectState) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    assert ledger.decide(newcomer.lease, write.intent_id, decision, by="policy\x00")
    found = read(ledger, effect)
    assert (found.state, found.result, found.duplicate_suspected) == (state, None, False)
    assert isinstance(ledger.intend(newcomer.lease, an_intent(effect, 1)), Intended) == (state is EffectState.FAILED)


def test_a_retry_keeps_the_number_that_makes_the_target_s_key(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    ledger.decide(newcomer.lease, write.intent_id, "retry", by="policy")
    again = an_intent(effect, 1)
    assert ledger.intend(newcomer.lease, again) == Intended(again.intent_id, 2, 0)


def test_a_decision_is_kept_with_the_request_that_it_is_about(world: World) -> None:
    """A crash before the next intent: the next attempt calls again with the recorded request."""
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    ledger.decide(newcomer.lease, write.intent_id, "retry", by="policy")
    third = next_attempt(world, newcomer, effect, 3)
    found = read(ledger, effect)
    assert (found.state, found.decision, found.decided_by) == (EffectState.FAILED, "retry", "policy")
    assert (found.request, found.request_fp, found.intent_id) == (write.request, write.request_fp, write.intent_id)
    ledger.intend(third.lease, an_intent(effect, 1))
    assert (read(ledger, effect).decision, read(ledger, effect).decided_by) == (None, None)


def test_a_decision_brings_the_result_that_the_target_gave(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.doubt(taken.lease, write.intent_id)
    assert ledger.decide(taken.lease, write.intent_id, "happened", by="reconcile", result=DONE, seal=b"sealed")
    assert (read(ledger, effect).result, read(ledger, effect).seal) == (DONE, b"sealed")
    assert read(ledger, effect).done_for is not None
    # A late outcome changes neither.
    ledger.settle(write.intent_id, "succeeded", result=Stored(inline=b"late"), seal=b"late")
    assert (read(ledger, effect).result, read(ledger, effect).seal) == (DONE, b"sealed")


@pytest.mark.parametrize("decision", ["did_not_happen", "retry"])
def test_what_did_not_happen_has_no_result(ledger: Ledger, decision: Decision) -> None:
    taken, effect = start(ledger), an_effect()
    write = intend(ledger, taken, effect)
    ledger.doubt(taken.lease, write.intent_id)
    with pytest.raises(ValueError, match="no result"):
        ledger.decide(taken.lease, write.intent_id, decision, by="policy", result=DONE)
    assert read(ledger, effect).state is EffectState.IN_DOUBT


def test_the_first_decision_wins(world: World) -> None:
    """P6: a decision about intent i moves intent i only."""
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    assert ledger.decide(newcomer.lease, write.intent_id, "did_not_happen", by="one")
    assert not ledger.decide(newcomer.lease, write.intent_id, "happened", by="two")
    assert not ledger.decide(newcomer.lease, write.intent_id, "did_not_happen", by="two")
    # The very same one again is a repeat after a lost answer.
    assert ledger.decide(newcomer.lease, write.intent_id, "did_not_happen", by="one")
    assert read(ledger, effect).state is EffectState.FAILED


def test_a_decision_about_an_old_intent_leaves_the_new_one_alone(world: World) -> None:
    """P6, row "decisions by state only"."""
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    second = next_attempt(world, taken, effect)
    ledger.doubt(second.lease, write.intent_id)
    ledger.settle(write.intent_id, "not_applied", result=None)
    again = intend(ledger, second, effect, 1)
    third = next_attempt(world, second, effect, 3)
    assert ledger.doubt(third.lease, again.intent_id)
    assert not ledger.decide(third.lease, write.intent_id, "happened", by="late form")
    assert read(ledger, effect).state is EffectState.IN_DOUBT


def test_a_decision_needs_a_doubt_and_a_live_lease(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert not ledger.decide(taken.lease, write.intent_id, "retry", by="policy")
    second = next_attempt(world, taken, effect)
    ledger.doubt(second.lease, write.intent_id)
    assert not ledger.decide(taken.lease, write.intent_id, "retry", by="policy")
    world.pass_time(TTL + 1)
    assert not ledger.decide(second.lease, write.intent_id, "retry", by="policy")
    assert not ledger.decide(second.lease, uuid4(), "retry", by="policy")
    ledger.settle(write.intent_id, "succeeded", result=DONE)
    ledger.beat(second.lease, ttl=TTL, idle=0, step=None)
    assert not ledger.decide(second.lease, write.intent_id, "retry", by="policy")
    assert read(ledger, effect).state is EffectState.SUCCEEDED


def test_of_many_deciders_one_wins(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    newcomer = next_attempt(world, taken, effect)
    ledger.doubt(newcomer.lease, write.intent_id)
    barrier = threading.Barrier(6)
    won: list[str] = []

    def race(number: int) -> None:
        barrier.wait()
        by = f"decider {number}"
        if ledger.decide(newcomer.lease, write.intent_id, "happened" if number % 2 else "did_not_happen", by=by):
            won.append(by)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    happened = int(won[0][-1]) % 2 == 1
    assert read(ledger, effect).state is (EffectState.SUCCEEDED if happened else EffectState.FAILED)


# --- when an owner is gone ---


def test_an_owner_is_gone_after_lease_and_timeout(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    intend(ledger, taken, effect)
    world.pass_time(TTL + 1)
    found = read(ledger, effect)
    assert not found.live
    assert found.gone_in == pytest.approx(TIMEOUT - 1, abs=5)
    world.pass_time(TIMEOUT)
    assert read(ledger, effect).gone_in <= 0
    ledger.beat(taken.lease, ttl=TTL, idle=0, step=None)
    assert read(ledger, effect).live


def test_a_take_over_keeps_counting_on_the_former_lease(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    intend(ledger, taken, effect)
    world.pass_time(10)
    execution = read(ledger, effect).execution
    take(ledger, an_attempt(execution, 2), ttl=1_000)
    found = read(ledger, effect)
    assert not found.live
    assert found.gone_in == pytest.approx(TTL - 10 + TIMEOUT, abs=5)
    take(ledger, an_attempt(execution, 3), ttl=1_000)
    assert read(ledger, effect).gone_in == pytest.approx(TTL - 10 + TIMEOUT, abs=5)


def test_an_owner_that_gave_its_lease_back_counts_from_then(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    intend(ledger, taken, effect)
    world.pass_time(5)
    ledger.finish(taken.lease, ExecutionState.FAILED, result=None)
    world.pass_time(10)
    found = read(ledger, effect)
    assert not found.live
    assert found.gone_in == pytest.approx(TIMEOUT - 10, abs=5)


def test_an_intent_after_the_lease_s_end_counts_from_itself(world: World) -> None:
    """An intent committed under a short lease by a call that is slow to come back."""
    ledger, attempt, effect = world.ledger, an_attempt(an_execution()), an_effect()
    taken = take(ledger, attempt, ttl=1_000)
    intend(ledger, taken, effect)
    ledger.beat(taken.lease, ttl=-50, idle=0, step=None)
    assert read(ledger, effect).gone_in == pytest.approx(TIMEOUT, abs=5)


# --- what an attempt replays from ---


def test_recorded_gives_the_effects_that_the_execution_wrote_last(world: World) -> None:
    ledger, attempt = world.ledger, an_attempt(an_execution())
    first = take(ledger, attempt)
    done, open_one, other = an_effect(), an_effect(), an_effect()
    ledger.settle(intend(ledger, first, done).intent_id, "succeeded", result=DONE, seal=b"s")
    intend(ledger, first, open_one)
    intend(ledger, start(ledger), other)
    second = take(ledger, an_attempt(attempt.execution, 2, max_tries=4, clear_number=1), new_generation=True)
    effects = {record.effect: record for record in ledger.recorded(second.lease, second.generation).effects}
    assert set(effects) == {done, open_one}
    for effect in (done, open_one):
        alone = read(ledger, effect)
        assert timeless(effects[effect]) == timeless(alone)
    assert (effects[done].result, effects[done].seal) == (DONE, b"s")
    assert not effects[open_one].live


# --- calls that are left on purpose, and refusals ---


def test_a_call_that_is_left_on_purpose_is_not_gone_before_its_time(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert ledger.leave(taken.lease, write.intent_id, seconds=86_400.0)
    ledger.finish(taken.lease, ExecutionState.PAUSED, result=None)
    world.pass_time(80_000.0)
    found = read(ledger, effect)
    assert (found.state, found.live, found.absent) == (EffectState.INTENDED, False, True)
    assert found.gone_in == pytest.approx(6_400.0 + TIMEOUT, abs=5)

    def waits() -> bool:
        entries = world.inbox.waiting(after=found.number - 1, limit=1)
        return [entry.effect.effect for entry in entries if entry.effect is not None] == [effect]

    assert not waits()
    world.pass_time(6_400.0 + TIMEOUT + 1)
    assert read(ledger, effect).gone_in <= 0
    assert waits()


def test_a_call_that_is_come_back_to_is_in_the_hands_of_who_came(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert ledger.leave(taken.lease, write.intent_id, seconds=60.0)
    ledger.finish(taken.lease, ExecutionState.PAUSED, result=None)
    world.pass_time(300.0)
    execution = read(ledger, effect).execution
    again = take(ledger, an_attempt(execution, 2))
    # From its start the call's time runs, whether it has taken the call yet or not.
    assert read(ledger, effect).gone_in == pytest.approx(TIMEOUT, abs=5)
    assert ledger.leave(again.lease, write.intent_id, seconds=None)
    found = read(ledger, effect)
    assert (found.lease, found.live, found.absent) == (again.lease, True, False)
    assert not ledger.doubt(start(ledger).lease, write.intent_id), "who is at work is not doubted"
    assert ledger.settle(write.intent_id, "succeeded", result=DONE) == Settled(EffectState.SUCCEEDED, False)


def test_only_an_open_call_of_ones_own_is_left(world: World) -> None:
    ledger, taken, effect = world.ledger, start(world.ledger), an_effect()
    write = intend(ledger, taken, effect)
    assert not ledger.leave(start(ledger).lease, write.intent_id, seconds=60.0), "another execution's"
    assert not ledger.leave(taken.lease, uuid4(), seconds=60.0), "nobody's"
    newcomer = next_attempt(world, taken, effect)
    assert not ledger.leave(taken.lease, write.intent_id, seconds=60.0), "of a superseded attempt"
    ledger.settle(write.intent_id, "not_applied", result=None)
    assert not ledger.leave(newcomer.lease, write.intent_id, seconds=60.0), "settled"
    assert not read(ledger, effect).absent


def test_refusals_are_counted_over_the_earlier_processes_of_a_try(world: World) -> None:
    ledger, effect, execution = world.ledger, an_effect(), an_execution()
    first = an_attempt(execution, 1)
    for number in range(3):  # the same attempt goes on
        taken = take(ledger, first)
        assert ledger.refused(taken.lease, effect).number == number
        write = intend(ledger, taken, effect, number)
        ledger.settle(write.intent_id, "not_applied", result=None)
        assert ledger.refused(taken.lease, effect).number == number, "its own are not among them"
        ledger.finish(taken.lease, ExecutionState.PAUSED, result=None)
    refusals = ledger.refused(take(ledger, first).lease, effect)
    assert refusals.number == 3
    assert refusals.since is not None
    retry = take(ledger, an_attempt(execution, 2))
    assert ledger.refused(retry.lease, effect).number == 0, "a retry has tries of its own"
    assert ledger.refused(retry.lease, an_effect()) == Refusals(0, None)
