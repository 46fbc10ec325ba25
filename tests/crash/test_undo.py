"""
Killed while an effect is taken back: never taken back twice without a person's word, never forgotten.

What the outside saw is the measure. A killed undo is found by the next attempt, or by who looks into the inbox.
"""

from __future__ import annotations

from functools import partial

import pytest

from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.durable.reconcile import Intent
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.flow import Flow
from tests.crash import child, life
from tests.crash.launcher import Attempts
from tests.crash.life import DOUBT, FAILED, KILLED, Life


def pay(ctx: EffectContext, cents: int) -> str:
    """Pay outside."""
    child.seen("paid", ctx.idempotency_key)
    return f"ch_{cents}"


def refund(intent: Intent, charge: str) -> None:
    """Give it back outside."""
    child.seen("refunded", f"{intent.idempotency_key} {charge} {intent.request['cents']}")


def body(flow: Flow) -> None:
    """Pay twice, then fail."""
    for number in (1, 2):
        flow.effect("pay", pay, number, key=f"order/{number}", compensate=refund, on_in_doubt="hold")
    raise RuntimeError("no stock")


class LastTries(Life):
    """Be an execution each of whose attempts is the last one, as far as it knows."""

    def _attempt(self) -> int:
        # In the attempt's own process alone.
        vars(life)["run_attempt"] = partial(run_attempt, for_good=lambda _error: True)
        return super()._attempt()


@pytest.fixture
def last(attempts: Attempts) -> LastTries:
    """Give an execution that fails for good."""
    made = LastTries(attempts.folder, attempts.dsn, attempts.store, kind="effect", name=attempts.folder.name)
    made.body = body
    return made


def run(last: LastTries, armed: str | None = None) -> int:
    """Run an attempt to its end; after it, Airflow's next one."""
    code = last.start(armed).wait()
    assert code is not None
    last.retried()
    return code


def numbers(last: LastTries) -> list[int]:
    """Give the numbers that wait for a person."""
    with last.inbox() as inbox:
        return [entry.number for entry in inbox.waiting()]


def test_nobody_is_killed(last: LastTries) -> None:
    assert run(last) == FAILED
    paid = last.outside("paid")
    assert [line.split()[0] for line in last.outside("refunded")] == paid[::-1]
    assert numbers(last) == []


def test_killed_before_the_undo_s_intent_it_is_taken_back_by_the_next(last: LastTries) -> None:
    assert run(last, "before_intent@pay/undo:2") == KILLED
    assert [line.split()[1] for line in last.outside("refunded")] == ["ch_2"]
    # The second one was taken back and is done again, the first one was not.
    assert run(last) == FAILED
    assert [line.split()[1] for line in last.outside("refunded")] == ["ch_2", "ch_2", "ch_1"]
    assert len(last.outside("paid")) == len(set(last.outside("paid"))) == 3


@pytest.mark.parametrize(("site", "refunded"), [("after_intent", 0), ("after_act", 1)])
@pytest.mark.parametrize("word", ["happened", "did_not_happen"])
def test_killed_between_intent_and_record_a_person_is_asked(
    last: LastTries, site: str, refunded: int, word: str
) -> None:
    assert run(last, f"{site}@pay/undo") == KILLED
    for _ in range(2):
        assert run(last) == DOUBT
        assert len(last.outside("refunded")) == refunded
        assert len(last.outside("paid")) == 2
    [number] = numbers(last)
    with last.inbox() as inbox:
        assert inbox.resolve(number, word, by="ann").counts  # type: ignore[arg-type]
    assert run(last) == FAILED
    # Taken back, it is paid again and taken back again; not taken back, it is taken back now, once.
    again = word == "happened"
    assert len(last.outside("paid")) == 2 + again
    assert len(last.outside("refunded")) == refunded + 2
    assert len(set(last.outside("paid"))) == len(last.outside("paid"))
    assert numbers(last) == []


def test_killed_after_the_undo_s_record_the_effect_is_known_to_be_taken_back(last: LastTries) -> None:
    assert run(last, "after_record@pay/undo") == KILLED
    assert len(last.outside("refunded")) == 1
    assert run(last) == FAILED
    assert len(last.outside("paid")) == len(set(last.outside("paid"))) == 3
    keys = [line.split()[0] for line in last.outside("refunded")]
    assert sorted(keys) == sorted(set(last.outside("paid")))
