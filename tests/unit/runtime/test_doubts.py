"""An effect in doubt: the target is asked, then a person; each answer decides one intent, and nothing is sent alone."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.durable.identity import EffectId, effect_namespace
from airflow_aiflow.durable.reconcile import CannotTell, DidNotHappen, Finding, Happened, Intent, StillPending
from airflow_aiflow.exceptions import (
    AttemptAsks,
    AttemptParked,
    EffectConflictError,
    EffectDeclinedError,
    EffectInDoubtError,
    EffectNotAppliedError,
)
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.process import this_owner
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock

SENT: list[Any] = []
KEYS: list[str] = []
ASKED: list[Intent] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()
    KEYS.clear()
    ASKED.clear()


class Lost(Exception):
    """Stand for a lost reply."""


@dataclass
class Receipt:
    """Be a class of the author's."""

    number: str


def mail(to: str, subject: str = "hello") -> str:
    SENT.append((to, subject))
    if len(SENT) == 1:
        raise Lost("token hunter2")
    return f"sent to {to}"


def pay(ctx: EffectContext, number: str, cents: int = 100) -> Receipt:
    SENT.append((number, cents))
    KEYS.append(ctx.idempotency_key)
    if len(SENT) == 1:
        raise Lost
    return Receipt(f"R{len(SENT)}")


def finds(*findings: object) -> Callable[[Intent], Finding]:
    """Make a reconcile= that says one thing after the other, the last one for ever."""
    left = list(findings)

    def reconcile(intent: Intent) -> Finding:
        ASKED.append(intent)
        finding = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(finding, Exception):
            raise finding
        if finding is later:
            return later()  # type: ignore[return-value]
        return finding  # type: ignore[return-value]

    return reconcile


def one_mail(f: Flow) -> object:
    return f.effect("mail", mail, "a@example.com", key="k")


def asked(task: DurableTask, body: Callable[[Flow], object]) -> AttemptAsks:
    with pytest.raises(AttemptAsks) as caught:
        task.run(body)
    return caught.value


def state_of(task: DurableTask, name: str, key: str = "k") -> EffectState:
    found = task.ledger.effect(EffectId(effect_namespace("dag", task.execution, 1), name, key))
    assert found is not None
    return found.state


class Died(DurableTask):
    """Have attempts whose owner is verified dead afterwards: a process of this machine that is gone."""

    def attempt(self) -> Attempt:
        made = super().attempt()
        return replace(made, owner=replace(this_owner(made.owner.ti_id), pid=2**22 + 1, start=1))


# --- ask --------------------------------------------------------------------------------------------------------------


def test_a_lost_reply_is_asked_about_and_nothing_is_sent_meanwhile() -> None:
    task = DurableTask(secrets=("hunter2",))
    asks = asked(task, one_mail)
    number = task.inbox.waiting()[0].number
    assert list(asks.form.options) == [
        f"It happened (#{number})",
        f"It did not happen: run it (#{number})",
        f"Fail the task (#{number})",
    ]
    assert asks.form.subject == 'Did "mail" happen?  k'
    assert "mail(to='a@example.com', subject='hello')" in asks.form.body
    assert "by attempt 1" in asks.form.body
    assert "Idempotency key af_" in asks.form.body
    assert "hunter2" not in asks.form.body
    assert asks.form.timeout == 86_400
    assert any(
        line.endswith(f"IN DOUBT: begun 00:00:00 by attempt 1, no outcome. Waiting for a person (#{number})")
        for line in task.host.warnings
    )
    for _ in range(2):
        task.same_again()
        asked(task, one_mail)
    assert len(SENT) == 1
    assert len(task.inbox.waiting()) == 1


def test_it_happened_gives_no_result_and_is_never_sent_again() -> None:
    task = DurableTask()
    asked(task, one_mail)
    task.answer("It happened")
    assert task.run(one_mail) is None
    assert task.run(one_mail) is None
    assert len(SENT) == 1
    assert task.inbox.waiting() == []


def test_it_did_not_happen_is_called_with_the_recorded_arguments_and_key() -> None:
    task = DurableTask()
    asked(task, lambda f: f.effect("pay", pay, "old", 5, key="k"))
    task.answer("It did not happen")
    assert task.run(lambda f: f.effect("pay", pay, "new", key="k")) == Receipt("R2")
    assert SENT == [("old", 5), ("old", 5)]
    assert any(
        "called with the recorded request, which is not today's: number 'old' -> 'new'" in line
        for line in task.host.warnings
    )
    assert len(set(KEYS)) == 1


def test_fail_the_task_leaves_the_doubt_and_a_clear_asks_again() -> None:
    task = DurableTask()
    asked(task, one_mail)
    task.answer("Fail the task", by="ann")
    with pytest.raises(EffectDeclinedError, match="ann told the task to fail"):
        task.run(one_mail)
    with pytest.raises(EffectDeclinedError):
        task.run(one_mail)  # a retry finds the same answer
    assert state_of(task, "mail") is EffectState.IN_DOUBT
    task.cleared()
    asked(task, one_mail)
    task.answer("It happened")
    assert task.run(one_mail) is None
    assert len(SENT) == 1


@pytest.mark.parametrize(("word", "sent"), [("It happened", 1), ("It did not happen", 2)])
@pytest.mark.parametrize("asked_anew", [True, False])
def test_a_word_in_a_form_from_before_a_clear_counts_for_its_call(word: str, sent: int, asked_anew: bool) -> None:
    """A clear while an answer is pending: what was asked about is a call, and whether that happened does not change."""
    task = DurableTask()
    asked(task, one_mail)
    old = task.form
    task.cleared()
    if asked_anew:
        asked(task, one_mail)
        assert len(task.inbox.waiting()) == 1, "one call waits, however often it was asked about"
        task.form = old
        task.answer(word)
    else:
        cleared = task._next
        task.answer(word)
        task._next = cleared
    task.run(one_mail)
    assert len(SENT) == sent
    assert task.inbox.waiting() == []


def test_fail_the_task_in_a_form_from_before_a_clear_changes_nothing() -> None:
    """The task that was told so is not the one that waits now."""
    task = DurableTask()
    asked(task, one_mail)
    old = task.form
    task.cleared()
    asked(task, one_mail)
    new, task.form = task.form, old
    with pytest.raises(ValueError, match="asked no more, for its task was cleared"):
        task.answer("Fail the task")
    task.same_again()
    asked(task, one_mail)
    assert state_of(task, "mail") is EffectState.IN_DOUBT
    task.form = new
    task.answer("It happened")
    assert task.run(one_mail) is None
    assert len(SENT) == 1


def test_nobody_answers_in_time_and_the_doubt_stays() -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.effect("mail", mail, "a", key="k", in_doubt_timeout=3600)

    asked(task, body)
    task.clock.wait(3500)
    task.same_again()
    assert 0 < (asked(task, body).form.timeout or 0) <= 100
    task.clock.wait(200)
    task.same_again()
    with pytest.raises(EffectInDoubtError, match="Nobody answered in 3600 s"):
        task.run(body)
    (entry,) = task.inbox.waiting()
    assert task.inbox.resolve(entry.number, "happened", by="ann").counts
    assert task.run(body) is None
    assert len(SENT) == 1


def test_the_second_of_two_persons_is_told_who_was_first() -> None:
    task = DurableTask()
    asked(task, one_mail)
    task.answer("It happened", by="ann")
    with pytest.raises(ValueError, match="ann"):
        task.answer("It did not happen", by="bob")
    assert task.run(one_mail) is None
    assert len(SENT) == 1


def test_an_answer_that_came_by_another_door_is_found_by_who_comes_back() -> None:
    task = DurableTask()
    asked(task, one_mail)
    number = task.inbox.waiting()[0].number
    assert task.inbox.resolve(number, "did_not_happen", by="ann").counts
    assert task.run(one_mail) == "sent to a@example.com"
    assert len(SENT) == 2


def lose(to: str) -> None:
    SENT.append(to)
    raise Lost


def test_what_is_in_doubt_of_this_task_is_asked_in_one_form() -> None:
    task = DurableTask()

    def held(f: Flow) -> None:
        for to in ("a", "b", "c"):
            with pytest.raises(EffectInDoubtError):
                f.effect("mail", lose, to, key=to, on_in_doubt="hold")

    task.run(held)
    task.clock.wait(1000)

    def body(f: Flow) -> list[object]:
        return [f.effect("mail", lose, to, key=to) for to in ("a", "b", "c")]

    asks = asked(task, body)
    one, two, three = (entry.number for entry in task.inbox.waiting())
    marks = f"(#{one}, #{two}, #{three})"
    assert list(asks.form.options) == [
        f"All happened {marks}",
        f"None happened: run them {marks}",
        f"Answer one by one in the inbox (#{one})",
        f"Fail the task (#{one})",
    ]
    for key in ("'a'", "'b'", "'c'"):
        assert key in asks.form.body
    task.answer("Answer one by one")
    asked(task, body)
    task.answer("All happened")
    assert task.run(body) == [None, None, None]
    assert SENT == ["a", "b", "c"]


def test_a_form_lists_so_many_and_says_that_there_may_be_more() -> None:
    task = DurableTask()
    keys = [f"key-{number:02}" for number in range(30)]

    def held(f: Flow) -> None:
        for key in keys:
            with pytest.raises(EffectInDoubtError):
                f.effect("mail", lose, key, key=key, on_in_doubt="hold")

    task.run(held)

    def body(f: Flow) -> list[object]:
        return [f.effect("mail", lose, key, key=key) for key in keys]

    asks = asked(task, body)
    assert asks.form.body.count("Idempotency key") == 21
    assert "More may wait in the inbox" in asks.form.body
    task.answer("All happened")
    asks = asked(task, body)
    assert asks.form.body.count("Idempotency key") == 9
    task.answer("All happened")
    assert task.run(body) == [None] * 30
    assert len(SENT) == 30


def test_an_intent_whose_owner_may_be_at_work_is_not_listed_in_a_form() -> None:
    task = DurableTask()

    def killed(f: Flow) -> None:
        f.effect("slow", dies, "a", key="slow", timeout=5000)

    with pytest.raises(SystemExit):
        task.run(killed)
    # As after a SIGKILL: the intent stays open, nobody has put it in doubt.
    reopen(task.ledger)
    asks = asked(task, one_mail)
    assert "slow" not in asks.form.body


def dies(to: str) -> None:
    raise SystemExit(1)


def reopen(ledger: object) -> None:
    assert isinstance(ledger, MemoryLedger)
    with ledger.statement() as tables:
        for row in tables.effects.values():
            row.state = EffectState.INTENDED


def test_hold_names_the_command() -> None:
    task = DurableTask()
    with pytest.raises(EffectInDoubtError) as caught:
        task.run(lambda f: f.effect("mail", mail, "a", key="k", on_in_doubt="hold"))
    number = task.inbox.waiting()[0].number
    assert f"aiflow effects resolve {number} --happened | --did-not-happen" in str(caught.value)


# --- reconcile --------------------------------------------------------------------------------------------------------


def test_the_target_is_asked_with_the_recorded_request() -> None:
    task = DurableTask()
    reconcile = finds(Happened("R77"))
    assert task.run(lambda f: f.effect("mail", mail, "a", key="k", reconcile=reconcile)) == "R77"
    (intent,) = ASKED
    assert (intent.name, intent.key, intent.attempt) == ("mail", "k", 1)
    assert intent.request == {"to": "a", "subject": "hello"}
    assert intent.begun_at.tzinfo is not None
    assert task.run(lambda f: f.effect("mail", mail, "a", key="k")) == "R77"
    assert len(SENT) == 1


def test_a_result_that_the_target_gave_comes_back_as_the_functions_class() -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.effect("pay", pay, "1", key="k", reconcile=finds(Happened(Receipt("R9"))))

    assert task.run(body) == Receipt("R9")
    assert task.run(body) == Receipt("R9")
    assert len(ASKED) == 1


def test_a_no_about_our_own_call_is_trusted_with_our_key_alone() -> None:
    """A call that timed out may lie before the target still: it is not there yet, and comes."""
    task = DurableTask()
    reconcile = finds(DidNotHappen())
    assert task.run(lambda f: f.effect("pay", pay, "1", key="k", reconcile=reconcile)) == Receipt("R2")
    SENT.clear()
    asks = asked(task, lambda f: f.effect("mail", mail, "a", key="k", reconcile=reconcile))
    assert "so that it may yet be applied" in asks.form.body
    assert len(SENT) == 1


def held_then(task: DurableTask, fn: Callable[..., object], *args: object) -> None:
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("mail", fn, *args, key="k", on_in_doubt="hold"))
    task.clock.wait(1000)


def test_a_no_about_a_caller_that_is_only_presumed_gone_is_asked_about() -> None:
    task = DurableTask()
    held_then(task, mail, "a")
    asks = asked(task, lambda f: f.effect("mail", mail, "a", key="k", reconcile=finds(DidNotHappen())))
    assert "reconcile= says that it did not happen. But the first caller is not verified dead" in asks.form.body
    assert len(SENT) == 1


def test_a_no_is_trusted_where_the_first_caller_is_verified_dead() -> None:
    task = Died()
    held_then(task, mail, "old")
    reconcile = finds(DidNotHappen())
    assert task.run(lambda f: f.effect("mail", mail, "new", key="k", reconcile=reconcile)) == "sent to old"
    assert len(SENT) == 2


def test_a_no_is_trusted_where_the_request_carried_our_key() -> None:
    task = DurableTask()
    held_then(task, pay, "old")
    reconcile = finds(DidNotHappen())
    assert task.run(lambda f: f.effect("mail", pay, "new", key="k", reconcile=reconcile)) == Receipt("R2")
    assert [number for number, _ in SENT] == ["old", "old"]
    assert len(set(KEYS)) == 1


def test_a_target_that_is_at_work_is_asked_again_later() -> None:
    task = DurableTask()
    reconcile = finds(StillPending(120), StillPending(), Happened("done"))

    def body(f: Flow) -> object:
        return f.effect("mail", mail, "a", key="k", reconcile=reconcile)

    with pytest.raises(AttemptParked, match="still at work") as caught:
        task.run(body)
    assert caught.value.delay == 120
    assert not isinstance(caught.value, AttemptAsks)
    task.same_again()
    with pytest.raises(AttemptParked):
        task.run(body)
    task.same_again()
    assert task.run(body) == "done"
    assert len(ASKED) == 3
    assert len(SENT) == 1


def test_a_target_that_is_at_work_for_ever_fails_the_task_in_the_end() -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.effect("mail", mail, "a", key="k", reconcile=finds(StillPending()), in_doubt_timeout=600)

    with pytest.raises(AttemptParked):
        task.run(body)
    task.clock.wait(700)
    task.same_again()
    with pytest.raises(EffectInDoubtError, match="at work on it"):
        task.run(body)


async def later() -> Finding:
    return DidNotHappen()


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (CannotTell("the API is down, token hunter2"), "can't tell: the API is down"),
        (RuntimeError("no hunter2"), "failed with RuntimeError: no ***"),
        (None, "it gave None, which is no finding"),
        (DidNotHappen, "which is no finding"),
        (False, "it gave False, which is no finding"),
        (later, "the function gave a coroutine"),
        (StillPending(-5), "StillPending(check_in=) must be"),
    ],
)
def test_what_is_no_clear_word_is_read_as_cannot_tell(finding: object, words: str) -> None:
    task = DurableTask(secrets=("hunter2",))
    reconcile = finds(finding)
    asks = asked(task, lambda f: f.effect("mail", mail, "a", key="k", reconcile=reconcile))
    assert words in asks.form.body
    assert "hunter2" not in asks.form.body + "".join(task.host.lines)
    assert state_of(task, "mail") is EffectState.IN_DOUBT
    assert len(SENT) == 1


@pytest.mark.parametrize("result", [object(), "\ud800", print], ids=["object", "half a character", "function"])
def test_what_the_target_gave_and_cannot_be_stored_does_not_cost_its_word(result: object) -> None:
    task = DurableTask()
    first = task.run(lambda f: f.effect("mail", mail, "a", key="k", reconcile=finds(Happened(result))))
    assert state_of(task, "mail") is EffectState.SUCCEEDED
    assert task.run(lambda f: f.effect("mail", mail, "a", key="k")) == first
    assert any("can't be stored" in line for line in task.host.warnings)
    assert len(SENT) == 1


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_reconcile_that_ends_its_process_decides_nothing(end: BaseException) -> None:
    def ends(_intent: Intent) -> Finding:
        raise end

    task = DurableTask()
    with pytest.raises(type(end)):
        task.run(lambda f: f.effect("mail", mail, "a", key="k", reconcile=ends))
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("mail", mail, "a", key="k", on_in_doubt="hold"))
    assert len(SENT) == 1


def hangs(_intent: Intent) -> Finding:
    read_end, _write_end = os.pipe()
    os.read(read_end, 1)
    raise AssertionError("nothing is ever written")


@pytest.mark.parametrize("threaded", [False, True])
def test_a_reconcile_that_hangs_is_cut_off_at_the_effects_timeout(threaded: bool) -> None:
    task = DurableTask(clock=SystemClock())

    def call(_item: object) -> object:
        from airflow_aiflow.runtime.current import current_flow

        return current_flow().effect(
            "mail", mail, "a", key="k", reconcile=hangs, timeout=0.3, on_in_doubt="hold", retries=0
        )

    def body(f: Flow) -> object:
        return f.map("m", call, [1]) if threaded else call(1)

    with pytest.raises(EffectInDoubtError):
        task.run(body)
    assert any("did not end within 0.3 s; that is read as can't tell" in line for line in task.host.warnings)
    assert len(SENT) == 1


def test_a_decision_is_not_asked_for_twice_and_survives_a_kill_before_the_next_intent() -> None:
    """Decided, then killed: the next attempt calls with the recorded request."""
    task = DurableTask()
    ledger = task.ledger
    assert isinstance(ledger, MemoryLedger)
    real, calls = ledger.intend, iter([False, True])

    def killed(lease: object, intent: object) -> object:
        if next(calls, False):
            raise KeyboardInterrupt
        return real(lease, intent)  # type: ignore[arg-type]

    ledger.intend = killed  # type: ignore[method-assign, assignment]

    def body(number: str) -> Callable[[Flow], object]:
        return lambda f: f.effect("pay", pay, number, key="k", reconcile=finds(DidNotHappen()))

    with pytest.raises(KeyboardInterrupt):
        task.run(body("old"))
    assert state_of(task, "pay") is EffectState.FAILED
    assert task.run(body("new")) == Receipt("R2")
    assert [number for number, _ in SENT] == ["old", "old"]
    assert len(ASKED) == 1


def test_another_run_that_shares_the_key_sends_its_own_request_once_the_first_surely_did_not_happen() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    first = DurableTask(ledger=ledger, clock=clock, run_id="r1")
    second = DurableTask(ledger=ledger, clock=clock, run_id="r2")
    held_then(first, mail, "first")
    asked(second, lambda f: f.effect("mail", mail, "second", key="k"))
    second.answer("It did not happen")
    assert second.run(lambda f: f.effect("mail", mail, "second", key="k")) == "sent to second"
    with pytest.raises(EffectConflictError):
        first.run(lambda f: f.effect("mail", mail, "first", key="k"))


# --- retry ------------------------------------------------------------------------------------------------------------


def test_past_its_window_a_retry_is_asked_about() -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.effect("pay", pay, "1", key="k", on_in_doubt="retry", retry_window=3600, retries=0)

    with pytest.raises(Lost):
        task.run(body)
    task.clock.wait(4000)
    asks = asked(task, body)
    assert "the target remembers our key for 3600 s alone" in asks.form.body
    assert len(SENT) == 1


def test_within_its_window_a_retry_is_made_counted_from_the_first_call() -> None:
    task = DurableTask()

    def body(f: Flow) -> object:
        return f.effect("pay", always_lost, "1", key="k", on_in_doubt="retry", retry_window=3600, retries=0)

    for _ in range(2):
        with pytest.raises(Lost):
            task.run(body)
        task.clock.wait(2000)
    asked(task, body)
    assert len(SENT) == 2


def always_lost(ctx: EffectContext, number: str) -> None:
    SENT.append(number)
    raise Lost


def test_a_call_that_did_not_carry_our_key_is_not_retried_by_policy() -> None:
    """The function took no ctx when the call was made: the target can't know it again."""
    task = DurableTask()
    held_then(task, mail, "a")
    asks = asked(task, lambda f: f.effect("mail", mail_with_key, "a", key="k", on_in_doubt="retry"))
    assert "the target was not given our idempotency key" in asks.form.body
    assert len(SENT) == 1


def mail_with_key(ctx: EffectContext, to: str, subject: str = "hello") -> str:
    SENT.append(to)
    return "sent"


def test_what_is_refused_after_a_retry_is_called_with_the_recorded_request_later() -> None:
    """The first call may have been applied: the key must not meet other arguments."""
    task = DurableTask()

    def body(number: str) -> Callable[[Flow], object]:
        return lambda f: f.effect("pay", lost_then_refused, number, key="k", on_in_doubt="retry", retries=1)

    with pytest.raises(EffectNotAppliedError):
        task.run(body("old"))
    assert task.run(body("new")) == "paid old"
    assert SENT == ["old", "old", "old"]


def lost_then_refused(ctx: EffectContext, number: str) -> str:
    SENT.append(number)
    if len(SENT) == 1:
        raise Lost
    if len(SENT) == 2:
        raise EffectNotAppliedError("busy")
    return f"paid {number}"


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_that_differs_between_two_tries_is_held_and_both_are_named() -> None:
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("mail", mail, "a", key="uuid-1", on_in_doubt="hold"))
    with pytest.raises(EffectInDoubtError) as caught:
        task.run(lambda f: f.effect("mail", mail, "a", key="uuid-2"))
    assert "key uuid-2" in str(caught.value)
    assert "key uuid-1" in str(caught.value)
    assert len(SENT) == 1


@pytest.mark.parametrize(
    ("begun", "now"),
    [
        ({"key": "k"}, {"key": None}),
        ({"key": None}, {"key": "k"}),
        ({"key": "k"}, {"key": "k", "scope": "run"}),
        ({"key": "k", "scope": "generation"}, {"key": "k"}),
    ],
    ids=str,
)
def test_a_key_that_is_given_or_left_out_or_scoped_otherwise_is_another_key_too(
    begun: dict[str, Any], now: dict[str, Any]
) -> None:
    """A held doubt is met by an edit of the very options that say what it is: nothing may be sent on that."""
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("mail", mail, "a", on_in_doubt="hold", **begun))
    with pytest.raises(EffectInDoubtError, match=r"began the same request with key .*#1"):
        task.run(lambda f: f.effect("mail", mail, "a", **now))
    assert len(SENT) == 1
    assert task.inbox.resolve(1, "did_not_happen", by="ann").counts
    assert task.run(lambda f: f.effect("mail", mail, "a", **now)) == "sent to a"


def test_a_loop_over_several_keys_in_another_order_is_left_alone() -> None:
    task = DurableTask()

    def body(*keys: str) -> Callable[[Flow], object]:
        return lambda f: [f.effect("mail", mail, key, key=key, on_in_doubt="hold") for key in keys]

    with pytest.raises(EffectInDoubtError, match="key a"):
        task.run(body("a", "b"))
    with pytest.raises(EffectInDoubtError, match="key a"):
        task.run(body("z", "b", "a"))
    assert [to for to, _ in SENT] == ["a", "z", "b"]


def test_another_generations_effect_is_no_changed_key() -> None:
    task = DurableTask(on_clear="fresh")

    def body(f: Flow) -> object:
        return f.effect("mail", mail, "a", key="k", scope="generation", on_in_doubt="hold")

    with pytest.raises(EffectInDoubtError):
        task.run(body)
    task.cleared()
    assert task.run(body) == "sent to a"


def test_a_finding_that_comes_after_a_persons_word_changes_nothing() -> None:
    task = DurableTask()
    held_then(task, pay, "1")
    [entry] = task.inbox.waiting()

    def slow(_intent: Intent) -> Finding:
        assert task.inbox.resolve(entry.number, "happened", by="ann").counts
        return DidNotHappen()

    assert task.run(lambda f: f.effect("mail", pay, "1", key="k", reconcile=slow)) is None
    assert len(SENT) == 1
    assert not any("as reconcile= says" in line for line in task.host.lines)


def test_two_keys_of_one_request_are_two_effects_where_both_are_called() -> None:
    task = DurableTask()

    def body(*keys: str) -> Callable[[Flow], None]:
        def run(f: Flow) -> None:
            for key in keys:
                with contextlib.suppress(EffectInDoubtError):
                    f.effect("mail", mail, "a", key=key, on_in_doubt="hold")

        return run

    task.run(body("one"))
    task.run(body("one", "two"))
    assert len(SENT) == 2
    assert state_of(task, "mail", "two") is EffectState.SUCCEEDED


def test_an_open_intent_that_nobody_calls_again_is_told_at_the_end() -> None:
    task = DurableTask()
    with pytest.raises(EffectInDoubtError):
        task.run(lambda f: f.effect("mail", mail, "one", key="1", on_in_doubt="hold"))
    task.run(lambda f: f.effect("mail", mail, "two", key="2"))
    assert any("this attempt did not call it: it waits in the inbox" in line for line in task.host.warnings)


def test_the_form_says_on_which_machine_it_was() -> None:
    assert f"on {socket.gethostname()}" in asked(DurableTask(), one_mail).form.body
