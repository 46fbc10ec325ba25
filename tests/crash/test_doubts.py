"""
Killed while asking: a person before and after the question is written, a target, and between a decision and its intent.

What the outside saw is the measure. Nobody is asked twice, nothing is sent without a word, and a call after a doubt has
the recorded arguments and key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.durable.inbox import give_word
from airflow_aiflow.durable.reconcile import DidNotHappen, Finding, Happened, Intent
from airflow_aiflow.runtime.flow import Flow
from tests.crash import child
from tests.crash.launcher import Attempts
from tests.crash.life import ASKS, DONE, KILLED, Life

Body = Callable[[Flow], Any]


def send(ctx: EffectContext, to: str) -> str:
    """Send outside."""
    child.seen("sent", f"{ctx.idempotency_key} {to}")
    return f"sent to {to}"


def look(intent: Intent) -> Finding:
    """Look into the outside's own record, by our key."""
    child.seen("looks", intent.key)
    path: Path = child.OUTSIDE / "sent"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [line for line in lines if line.startswith(intent.idempotency_key)]
    return Happened(f"found: {found[0].split()[1]}") if found else DidNotHappen()


def sending(to: str, **options: Any) -> Body:
    return lambda flow: flow.effect("send", send, to, key="one", **options)


class Told:
    """Drive one execution: each step is an attempt in a process of its own."""

    def __init__(self, attempts: Attempts) -> None:
        self.life = Life(attempts.folder, attempts.dsn, attempts.store, kind="effect", name=attempts.folder.name)

    def run(self, body: Body, armed: str | None = None) -> int:
        """Run an attempt: the next retry after a kill, else the same one again."""
        self.life.body = body
        code = self.life.start(armed).wait()
        assert code is not None
        if code == KILLED:
            self.life.retried()
        return code

    def answer(self, begins: str) -> None:
        """Choose the option of the last form whose text begins so."""
        [words] = [words for text, words in json.loads(self.forms[-1]).items() if text.startswith(begins)]
        with self.life.inbox() as inbox:
            for number, word in words:
                assert give_word(inbox, number, word, by="ann", note="looked").counts

    @property
    def waiting(self) -> int:
        """How many things wait for a person."""
        with self.life.inbox() as inbox:
            return len(inbox.waiting())

    @property
    def sent(self) -> list[str]:
        """What the target got."""
        return self.life.outside("sent")

    @property
    def forms(self) -> list[str]:
        """What was asked."""
        return self.life.outside("forms")

    @property
    def result(self) -> Any:
        """What the last attempt gave."""
        return json.loads(self.life.outside("results")[-1])


@pytest.fixture
def told(attempts: Attempts) -> Told:
    return Told(attempts)


@pytest.mark.parametrize(
    ("first", "asking", "word", "sent", "result"),
    [
        ("after_act", "before_ask", "It happened", 1, None),
        ("after_act", "after_ask", "It happened", 1, None),
        ("before_act", "after_ask", "It did not happen", 1, "sent to a@example.com"),
    ],
)
def test_killed_while_asking_a_person(
    told: Told, first: str, asking: str, word: str, sent: int, result: str | None
) -> None:
    later = sending("a@example.com" if result is None else "b@example.com")
    assert told.run(sending("a@example.com"), first) == KILLED
    assert told.run(later, asking) == KILLED
    assert told.waiting == 1
    assert told.run(later) == ASKS
    assert told.waiting == 1
    told.answer(word)
    assert told.run(later) == DONE
    assert told.result == result
    assert [line.split()[1] for line in told.sent] == ["a@example.com"] * sent
    assert told.waiting == 0


def test_killed_between_a_persons_no_and_the_next_intent(told: Told) -> None:
    """The recorded arguments are called, by the attempt after that one too, and nobody is asked again."""
    assert told.run(sending("a@example.com"), "before_act") == KILLED
    assert told.run(sending("b@example.com")) == ASKS
    told.answer("It did not happen")
    assert told.run(sending("b@example.com"), "before_intent:2") == KILLED
    assert told.sent == []
    assert told.run(sending("b@example.com")) == DONE
    assert told.result == "sent to a@example.com"
    assert len(told.sent) == len(told.forms) == 1


@pytest.mark.parametrize(
    ("first", "asking", "looks", "result"),
    [
        ("after_act", "before_reconcile", 1, "found: a@example.com"),
        ("after_act", "after_reconcile", 2, "found: a@example.com"),
        ("after_act", "after_decide", 1, "found: a@example.com"),
        ("before_act", "after_reconcile", 2, "sent to a@example.com"),
        ("before_act", "after_decide", 1, "sent to a@example.com"),
    ],
)
def test_killed_while_asking_the_target(told: Told, first: str, asking: str, looks: int, result: str) -> None:
    assert told.run(sending("a@example.com", reconcile=look), first) == KILLED
    later = sending("a@example.com" if result.startswith("found") else "b@example.com", reconcile=look)
    assert told.run(later, asking) == KILLED
    assert told.run(later) == DONE
    assert told.result == result
    assert [line.split()[1] for line in told.sent] == ["a@example.com"]
    assert len(told.life.outside("looks")) == looks
    assert told.forms == []


@pytest.mark.parametrize("policy_point", ["after_decide", "before_intent:2"])
def test_killed_between_a_policys_retry_and_the_next_intent(told: Told, policy_point: str) -> None:
    assert told.run(sending("a@example.com", on_in_doubt="retry"), "after_act") == KILLED
    assert told.run(sending("b@example.com", on_in_doubt="retry"), policy_point) == KILLED
    assert told.run(sending("b@example.com", on_in_doubt="retry")) == DONE
    assert len(told.sent) == 2
    assert len(set(told.sent)) == 1  # one key and one request: the target applies it once


def test_killed_around_an_approval(told: Told) -> None:
    body = sending("a@example.com", require_approval=True)
    assert told.run(body, "before_ask") == KILLED
    assert told.run(body, "after_ask") == KILLED
    assert told.run(body) == ASKS
    assert told.sent == []
    told.answer("Approve")
    assert told.run(body, "before_intent") == KILLED
    assert told.run(body) == DONE
    assert len(told.sent) == len(told.forms) == 1


def test_killed_between_once_more_and_its_intent(told: Told) -> None:
    assert told.run(sending("a@example.com")) == DONE
    told.life.retried()
    body = sending("b@example.com", on_conflict="ask")
    assert told.run(body) == ASKS
    told.answer("Do it once more")
    assert told.run(body, "before_intent") == KILLED
    assert told.run(body) == DONE
    assert [line.split()[1] for line in told.sent] == ["a@example.com", "b@example.com"]
    assert len({line.split()[0] for line in told.sent}) == 2
    assert len(told.forms) == 1
