"""Asking and deciding over a ledger that blinks, loses its answers or goes away at any statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.durable.reconcile import DidNotHappen, Finding, Happened, Intent
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptAsks, EffectInDoubtError, LedgerUnavailableError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.testing import DurableTask, ManualClock
from tests.unit.runtime.shaky_ledger import ShakyLedger

SENT: list[Any] = []

#: More statements than one attempt with one question makes.
STATEMENTS = range(1, 16)

#: Longer than any patience: the ledger stays away for the whole attempt.
FOR_GOOD = 10**9

Body = Callable[[Flow], object]


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def pay(ctx: EffectContext, to: str) -> str:
    SENT.append((ctx.idempotency_key, to))
    if len(SENT) == 1:
        raise ConnectionResetError
    return f"paid {to}"


def happened(_intent: Intent) -> Finding:
    return Happened("found")


def did_not(_intent: Intent) -> Finding:
    return DidNotHappen()


def paying(to: str, **options: Any) -> Body:
    return lambda f: f.effect("pay", pay, to, key="k", **options)


class Shaky:
    """One task over a ledger that fails."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = ShakyLedger(self.clock)
        settings = FlowSettings(ledger_patience=5.0)
        self.task = DurableTask(ledger=self.ledger, clock=self.clock, settings=settings)

    def run(self, body: Body) -> object:
        """Run one attempt; what it raises is a value."""
        try:
            return self.task.run(body)
        except (Exception, AttemptAsks) as error:
            return error
        finally:
            self.clock.advance(1000)

    def shaken(self, body: Body, kind: str, number: int) -> object:
        """Run an attempt that meets a fault at a statement, and for a ledger that goes away one more."""
        if kind == "lost":
            self.ledger.arm(lost=number)
        else:
            self.ledger.arm(down=(number, number if kind == "blinks" else FOR_GOOD))
        came = self.run(body)
        self.ledger.arm()
        return self.run(body) if isinstance(came, LedgerUnavailableError) else came


FAULTS = pytest.mark.parametrize("kind", ["lost", "blinks", "away"])
NUMBERS = pytest.mark.parametrize("number", STATEMENTS)


@FAULTS
@NUMBERS
def test_a_question_is_one_question_whatever_the_ledger_does(kind: str, number: int) -> None:
    world = Shaky()
    came = world.shaken(paying("a"), kind, number)
    if kind == "away" and not isinstance(came, AttemptAsks):
        came = world.run(paying("a"))
    assert isinstance(came, AttemptAsks)
    assert len(world.task.inbox.waiting()) == 1
    assert len(SENT) == 1


@FAULTS
@NUMBERS
@pytest.mark.parametrize(("word", "result"), [("It happened", None), ("It did not happen", "paid a")])
def test_an_answer_is_carried_out_once_whatever_the_ledger_does(
    kind: str, number: int, word: str, result: object
) -> None:
    world = Shaky()
    assert isinstance(world.run(paying("a")), AttemptAsks)
    world.task.answer(word)
    # A retry of what is done meets today's request as any other does, so it must be the same.
    later = paying("a" if result is None or kind == "away" else "b")
    came = world.shaken(later, kind, number)
    if isinstance(came, AttemptAsks):
        # The ledger went away between the call and its record: that is another doubt.
        assert kind == "away"
        assert len(SENT) == 2
        return
    assert came == result
    assert [SENT[0]] * (1 if result is None else 2) == SENT


@FAULTS
@NUMBERS
@pytest.mark.parametrize(("reconcile", "result"), [(happened, "found"), (did_not, "paid a")])
def test_a_findings_decision_is_one_decision_whatever_the_ledger_does(
    kind: str, number: int, reconcile: Callable[[Intent], Finding], result: str
) -> None:
    world = Shaky()
    with pytest.raises(EffectInDoubtError):
        world.task.run(paying("a", on_in_doubt="hold"))
    world.clock.advance(1000)
    later = paying("a" if reconcile is happened or kind == "away" else "b", reconcile=reconcile)
    came = world.shaken(later, kind, number)
    assert came == result or (kind == "away" and came == "found")
    assert len({key for key, _ in SENT}) == 1
    assert {to for _, to in SENT} == {"a"}
    assert len(SENT) <= (1 if reconcile is happened else 3)
    assert world.task.inbox.waiting() == []


@FAULTS
@NUMBERS
def test_an_approved_request_is_sent_once_whatever_the_ledger_does(kind: str, number: int) -> None:
    SENT.append(("", ""))  # no reply is lost here
    world = Shaky()
    body = paying("a", require_approval=True, on_in_doubt="hold")
    assert isinstance(world.run(body), AttemptAsks)
    assert len(SENT) == 1
    world.task.answer("Approve")
    came = world.shaken(body, kind, number)
    assert came == "paid a" or (kind == "away" and isinstance(came, EffectInDoubtError))
    assert len(SENT) == (2 if came == "paid a" else len(SENT))
    assert len(SENT) <= 2
