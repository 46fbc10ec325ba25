"""What the ledger in memory has of its own: faults on request, and looks for tests. The contract has a suite."""

from __future__ import annotations

import pytest

from airflow_aiflow.durable.effect import EffectState, Intended
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.record import Batch, EventRecord
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import LedgerUnavailableError
from airflow_aiflow.storage.memory import MemoryLedger
from tests.contract.ledger_world import TTL, FakeClock, a_step, an_attempt, an_effect, an_execution, an_intent, take


@pytest.fixture
def ledger() -> MemoryLedger:
    """Give an empty one."""
    return MemoryLedger(FakeClock())


def test_while_it_is_unavailable_nothing_is_asked_and_nothing_changes(ledger: MemoryLedger) -> None:
    attempt, effect = an_attempt(an_execution()), an_effect()
    taken = take(ledger, attempt)
    lease, write = taken.lease, an_intent(effect)
    ledger.unavailable = True
    for ask in (
        ledger.check,
        lambda: ledger.standing(attempt.execution),
        lambda: ledger.take_over(an_attempt(attempt.execution, 2), sign=Sign.RETRY, seen=1, new_generation=True, ttl=1),
        lambda: ledger.want(lease.execution_pk, 1, write.intent_id),
        lambda: ledger.recorded(lease, 1),
        lambda: ledger.beat(lease, ttl=TTL, idle=0, step="x"),
        lambda: ledger.let_go(lease),
        lambda: ledger.record(lease, 1, Batch((a_step(),))),
        lambda: ledger.intend(lease, write),
        lambda: ledger.settle(write.intent_id, "succeeded", result=None),
        lambda: ledger.doubt(lease, write.intent_id),
        lambda: ledger.decide(lease, write.intent_id, "retry", by="x"),
        lambda: ledger.effect(effect),
        lambda: ledger.finish(lease, ExecutionState.FAILED, result=None),
        lambda: ledger.heard(lease),
    ):
        with pytest.raises(LedgerUnavailableError):
            ask()
    ledger.unavailable = False
    standing = ledger.standing(attempt.execution)
    assert standing is not None
    assert (standing.fence, standing.state) == (1, ExecutionState.RUNNING)
    assert ledger.beat(lease, ttl=TTL, idle=0, step=None).held
    assert list(ledger.recorded(lease, 1).steps) == []
    assert ledger.effect(effect) is None


def test_a_lost_answer_is_one_of_work_that_was_done(ledger: MemoryLedger) -> None:
    taken, effect = take(ledger, an_attempt(an_execution())), an_effect()
    write = an_intent(effect)
    ledger.lost_answers = 2
    with pytest.raises(LedgerUnavailableError):
        ledger.intend(taken.lease, write)
    with pytest.raises(LedgerUnavailableError):
        ledger.settle(write.intent_id, "succeeded", result=None)
    found = ledger.effect(effect)
    assert found is not None
    assert found.state is EffectState.SUCCEEDED


def test_an_intent_whose_answer_was_lost_is_the_same_intent(ledger: MemoryLedger) -> None:
    taken, write = take(ledger, an_attempt(an_execution())), an_intent(an_effect())
    ledger.lost_answers = 1
    with pytest.raises(LedgerUnavailableError):
        ledger.intend(taken.lease, write)
    assert ledger.intend(taken.lease, write) == Intended(write.intent_id, 1, 0)


def test_a_test_may_look_at_events_and_at_what_airflow_heard(ledger: MemoryLedger) -> None:
    attempt = an_attempt(an_execution())
    assert (ledger.events(attempt.execution), ledger.heard_at(attempt.execution)) == ([], None)
    first = take(ledger, attempt)
    ledger.record(first.lease, 1, Batch((), (EventRecord("b", b"2"),), 2))
    ledger.record(first.lease, 1, Batch((), (EventRecord("a", b"1"),), 1))
    second = take(ledger, an_attempt(attempt.execution, 2))
    ledger.record(second.lease, 1, Batch((), (EventRecord("c", b"3"),), 1))
    assert [event.kind for event in ledger.events(attempt.execution)] == ["a", "b", "c"]
    ledger.finish(second.lease, ExecutionState.SUCCEEDED, result=None)
    ledger.heard(second.lease)
    assert ledger.heard_at(attempt.execution) is not None
