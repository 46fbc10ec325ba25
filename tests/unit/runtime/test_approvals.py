"""A person agrees before something is sent, says what a conflict means, and what has expired is refused or new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.exceptions import (
    AttemptAsks,
    EffectConflictError,
    EffectDeclinedError,
    EffectExpiredError,
    EffectInDoubtError,
    EffectNotAppliedError,
    QuestionTimeoutError,
)
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock

SENT: list[object] = []
KEYS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()
    KEYS.clear()


def pay(ctx: EffectContext, number: str, cents: int) -> str:
    SENT.append((number, cents))
    KEYS.append(ctx.idempotency_key)
    return f"paid {cents}"


def refused_once(ctx: EffectContext, number: str, cents: int) -> str:
    SENT.append((number, cents))
    if len(SENT) == 1:
        raise EffectNotAppliedError("no")
    return "ok"


def lost_once(ctx: EffectContext, number: str, cents: int) -> str:
    SENT.append((number, cents))
    if len(SENT) == 1:
        raise ConnectionResetError
    return "ok"


def paying(cents: int, **options: object) -> Callable[[Flow], object]:
    return lambda f: f.effect("pay", pay, "4711", cents, key="4711", **options)


def asked(task: DurableTask, body: Callable[[Flow], object]) -> AttemptAsks:
    with pytest.raises(AttemptAsks) as caught:
        task.run(body)
    return caught.value


# --- require_approval -------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_a_person_agrees_and_a_replay_asks_nothing() -> None:
    task = DurableTask()
    body = paying(100, require_approval=True, assigned_users=("ann", "bob"))
    asks = asked(task, body)
    (entry,) = task.inbox.waiting()
    assert asks.form.subject == 'May "pay" be sent?  4711'
    assert "pay(number='4711', cents=100)" in asks.form.body
    assert list(asks.form.options) == [f"Approve (#{entry.number})", f"Reject (#{entry.number})"]
    assert asks.form.assigned_users == ("ann", "bob")
    assert SENT == []
    task.answer("Approve")
    assert task.run(body) == "paid 100"
    for step in (task.retried, task.cleared):
        step()
        assert task.run(body) == "paid 100"
    assert len(SENT) == 1
    assert task.inbox.waiting() == []


def test_an_approval_stands_through_a_retry_and_a_changed_request_asks_again() -> None:
    task = DurableTask()
    asked(task, paying(100, require_approval=True))
    task.answer("Approve")
    task.retried()
    asked(task, paying(900, require_approval=True))
    assert SENT == []
    task.answer("Approve")
    task.retried()
    assert task.run(paying(100, require_approval=True)) == "paid 100"


def test_a_no_sends_nothing_and_a_clear_asks_again() -> None:
    task = DurableTask()
    body = paying(100, require_approval=True)
    asked(task, body)
    task.answer("Reject", by="bob", note="too much")
    with pytest.raises(EffectDeclinedError, match=r"declined by bob .*: too much"):
        task.run(body)
    with pytest.raises(EffectDeclinedError):
        task.run(body)
    task.cleared()
    asked(task, body)
    task.answer("Approve")
    assert task.run(body) == "paid 100"


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_a_word_in_a_form_from_before_a_clear_agrees_to_nothing(option: str) -> None:
    """A clear while an answer is pending: it is asked anew, and the old form says so."""
    task = DurableTask()
    body = paying(100, require_approval=True)
    asked(task, body)
    old = task.form
    task.cleared()
    asked(task, body)
    new, task.form = task.form, old
    with pytest.raises(ValueError, match="asked no more, for its task was cleared"):
        task.answer(option)
    task.same_again()
    asked(task, body)
    assert SENT == []
    task.form = new
    task.answer("Approve")
    assert task.run(body) == "paid 100"


def test_nobody_agrees_in_time_and_nothing_is_sent() -> None:
    task = DurableTask()
    body = paying(100, require_approval=True, in_doubt_timeout=60)
    asked(task, body)
    task.clock.wait(61)
    task.same_again()
    with pytest.raises(QuestionTimeoutError, match="nobody answered"):
        task.run(body)
    assert SENT == []


def test_what_another_run_has_done_needs_no_approval() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    DurableTask(ledger=ledger, clock=clock, run_id="r1").run(paying(100))
    second = DurableTask(ledger=ledger, clock=clock, run_id="r2")
    assert second.run(paying(100, require_approval=True)) == "paid 100"
    assert len(SENT) == 1


@pytest.mark.parametrize(("fn", "calls"), [(refused_once, 2), (lost_once, 1)])
def test_an_approved_request_is_not_asked_about_again_by_its_retries(fn: Callable[..., str], calls: int) -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.effect("pay", fn, "1", 5, key="k", require_approval=True)

    asked(task, body)
    task.answer("Approve")
    if fn is lost_once:
        asked(task, body)
        assert len(SENT) == calls
        task.answer("It did not happen")
    assert task.run(body) == "ok"
    assert len(SENT) == 2


def test_a_call_after_a_doubt_is_the_one_that_was_approved() -> None:
    task = DurableTask()

    def body(cents: int) -> Callable[[Flow], object]:
        return lambda f: f.effect("pay", lost_once, "1", cents, key="k", require_approval=True)

    asked(task, body(5))
    task.answer("Approve")
    asked(task, body(5))
    task.answer("It did not happen")
    assert task.run(body(900)) == "ok"
    assert SENT == [("1", 5), ("1", 5)]


# --- conflicts --------------------------------------------------------------------------------------------------------


class TwoRuns:
    """Two runs that share a business key; the first one is done."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.ledger = MemoryLedger(clock)
        self.first = DurableTask(ledger=self.ledger, clock=clock, run_id="r1")
        self.second = DurableTask(ledger=self.ledger, clock=clock, run_id="r2")
        assert self.first.run(paying(100)) == "paid 100"


def test_a_conflict_names_the_three_ways_on_with_its_number() -> None:
    runs = TwoRuns()
    with pytest.raises(EffectConflictError) as caught:
        runs.second.run(paying(200))
    message = str(caught.value)
    (record,) = runs.second.inbox.effects()
    assert "cents 100 -> 200. Nothing was sent. " in message
    assert '(1) on_conflict="keep"' in message
    assert "(2) another key" in message
    assert message.endswith(f'(3) aiflow effects release {record.number} --reason "..."')
    assert runs.second.inbox.release(record.number, by="ann", note="as told").counts
    assert runs.second.run(paying(200)) == "paid 200"
    assert len(set(KEYS)) == 2


def test_a_person_keeps_what_was_done() -> None:
    runs = TwoRuns()
    body = paying(200, on_conflict="ask")
    asks = asked(runs.second, body)
    assert "What differs: cents 100 -> 200" in asks.form.body
    runs.second.answer("Keep what was done")
    assert runs.second.run(body) == "paid 100"
    assert runs.second.run(body) == "paid 100"
    assert SENT == [("4711", 100)]


def test_a_person_has_it_done_once_more_with_todays_request_and_another_key_for_the_target() -> None:
    runs = TwoRuns()
    body = paying(200, on_conflict="ask")
    asked(runs.second, body)
    runs.second.answer("Do it once more")
    assert runs.second.run(body) == "paid 200"
    assert runs.second.run(body) == "paid 200"
    assert SENT == [("4711", 100), ("4711", 200)]
    assert len(set(KEYS)) == 2


def test_once_more_is_once_although_the_attempt_dies_after_the_release() -> None:
    runs = TwoRuns()
    body = paying(200, on_conflict="ask")
    asked(runs.second, body)
    runs.second.answer("Do it once more")
    real = runs.ledger.intend

    def killed(*_: object) -> object:
        runs.ledger.intend = real  # type: ignore[method-assign]
        raise KeyboardInterrupt

    calls = iter([True])
    runs.ledger.intend = (  # type: ignore[method-assign]
        lambda lease, intent: real(lease, intent) if next(calls, False) else killed()  # type: ignore[assignment, return-value]
    )
    with pytest.raises(KeyboardInterrupt):
        runs.second.run(body)
    assert runs.second.run(body) == "paid 200"
    assert len(SENT) == 2


def test_a_person_lets_the_task_fail_and_a_third_request_is_another_question() -> None:
    runs = TwoRuns()
    asked(runs.second, paying(200, on_conflict="ask"))
    runs.second.answer("Fail the task", by="bob")
    with pytest.raises(EffectDeclinedError, match="bob told the task to fail"):
        runs.second.run(paying(200, on_conflict="ask"))
    asked(runs.second, paying(300, on_conflict="ask"))
    assert len(SENT) == 1


def test_nobody_says_what_a_conflict_means() -> None:
    runs = TwoRuns()
    body = paying(200, on_conflict="ask", in_doubt_timeout=60)
    asked(runs.second, body)
    runs.second.clock.wait(61)
    runs.second.same_again()
    with pytest.raises(EffectConflictError, match="Nobody answered question"):
        runs.second.run(body)


# --- dedup_ttl --------------------------------------------------------------------------------------------------------


def test_after_its_time_a_key_is_a_new_effect_for_another_run() -> None:
    runs = TwoRuns()
    assert runs.second.run(paying(100, dedup_ttl=3600)) == "paid 100"
    assert len(SENT) == 1
    runs.second.clock.wait(4000)
    third = DurableTask(ledger=runs.ledger, clock=runs.second.clock, run_id="r3")
    assert third.run(paying(100, dedup_ttl=3600)) == "paid 100"
    assert len(SENT) == 2
    assert len(set(KEYS)) == 2
    assert third.run(paying(100, dedup_ttl=3600)) == "paid 100"
    assert len(SENT) == 2


def test_after_its_time_a_clear_of_the_very_task_is_refused_and_its_retries_replay() -> None:
    task = DurableTask()
    body = paying(100, dedup_ttl=3600)
    task.run(body)
    task.clock.wait(4000)
    assert task.run(body) == "paid 100"
    task.cleared()
    with pytest.raises(EffectExpiredError, match="aiflow effects release"):
        task.run(body)
    assert len(SENT) == 1
    (record,) = task.inbox.effects()
    assert task.inbox.release(record.number, by="ann", note="once more").counts
    assert task.run(body) == "paid 100"
    assert len(SENT) == 2


@pytest.mark.parametrize("reach", [1, 2])
def test_after_its_time_our_own_recovery_s_clear_replays_and_a_person_s_beside_it_is_refused(reach: int) -> None:
    ledger = MemoryLedger(ManualClock())
    task = DurableTask(ledger=ledger, clock=ledger._tables.clock)
    body = paying(100, dedup_ttl=3600)
    task.run(body)
    ledger._tables.clock.wait(4000)
    standing = ledger.standing(task.execution)
    assert standing is not None
    ledger._tables.requeues[standing.execution_pk, standing.fence] = (0, reach)
    task.cleared()
    task.cleared()
    if reach == 2:
        assert task.run(body) == "paid 100"
    else:
        with pytest.raises(EffectExpiredError):
            task.run(body)
    assert len(SENT) == 1


# --- classify ---------------------------------------------------------------------------------------------------------


class Odd(Exception):
    """Be an error of the author's own."""


def odd(ctx: EffectContext, number: str) -> str:
    SENT.append(number)
    if len(SENT) == 1:
        raise Odd("odd")
    return "ok"


def raises(_error: BaseException) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize("word", ["not_applied", "rejected"])
def test_the_author_reads_an_exception_first(word: str) -> None:
    task = DurableTask()
    assert task.run(lambda f: f.effect("pay", odd, "1", key="k", classify=lambda _: word)) == "ok"
    assert SENT == ["1", "1"]


@pytest.mark.parametrize(
    ("classify", "words"),
    [
        (lambda _: "maybe", "classify= gave 'maybe', which is none of 'not_applied', 'rejected', 'unknown'"),
        (raises, "classify= raised RuntimeError: broken"),
        (lambda _: None, "unknown"),
    ],
)
def test_a_reading_that_is_none_is_told_and_ours_counts(classify: Callable[..., object], words: str) -> None:
    with pytest.raises(EffectInDoubtError) as caught:
        DurableTask().run(lambda f: f.effect("pay", odd, "1", key="k", classify=classify, on_in_doubt="hold"))
    notes = "".join(getattr(caught.value.__cause__, "__notes__", []))
    assert words in notes
    assert SENT == ["1"]
