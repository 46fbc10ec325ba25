"""Doubts, approvals and questions over the real ledger, with sealed and encrypted payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cryptography.fernet import Fernet

from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.durable.inbox import Form, give_word
from airflow_aiflow.durable.reconcile import Finding, Happened, Intent
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptAsks, EffectInDoubtError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.testing import DurableTask

SENT: list[object] = []

SECRET = "hunter2-hunter2"


def pay(ctx: EffectContext, number: str, password: str) -> dict[str, str]:
    SENT.append(number)
    if len(SENT) == 1:
        raise ConnectionResetError
    return {"paid": number}


def looks(intent: Intent) -> Finding:
    assert intent.request == {"number": "4711", "password": SECRET}
    return Happened({"paid": "found", "by": SECRET})


def paying(**options: object) -> Callable[[Flow], object]:
    return lambda f: f.effect("pay", pay, "4711", SECRET, key="4711", **options)


class World:
    """One task over a real ledger, and its inbox."""

    def __init__(self, dsn: str) -> None:
        SENT.clear()
        self.ledger = PostgresLedger.connect(dsn)
        self.inbox = PostgresInbox.connect(dsn)
        settings = FlowSettings(
            seal_key=b"a key of this deployment", payload_keys=(Fernet.generate_key(),), on_in_doubt="ask"
        )
        self.task = DurableTask(ledger=self.ledger, clock=SystemClock(), settings=settings, secrets=(SECRET,))

    def asked(self, body: Callable[[Flow], object]) -> Form:
        """Run an attempt that asks."""
        with pytest.raises(AttemptAsks) as caught:
            self.task.run(body)
        assert SECRET not in caught.value.form.body
        return caught.value.form

    def answer(self, form: Form, begins: str) -> None:
        """Choose the option that begins so."""
        [words] = [words for text, words in form.options.items() if text.startswith(begins)]
        for number, word in words:
            assert give_word(self.inbox, number, word, by="ann").counts
        self.task.same_again()


@pytest.fixture
def world(postgres_server: PostgresServer) -> Iterator[World]:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    world = World(dsn)
    yield world
    world.ledger.close()
    world.inbox.close()


def test_a_finding_is_sealed_and_encrypted_and_replayed(world: World) -> None:
    body = paying(reconcile=looks)
    wanted = {"paid": "found", "by": SECRET}
    assert world.task.run(body) == wanted
    assert world.task.run(body) == wanted
    [record] = world.inbox.effects()
    assert record.seal is not None
    assert record.result is not None
    assert SECRET.encode() not in (record.result.inline or b"") + (record.request.inline or b"")
    assert (record.decision, record.decided_by) == ("happened", "reconcile")
    assert SENT == ["4711"]


def test_a_doubt_an_approval_and_a_question_in_one_life(world: World) -> None:
    def body(f: Flow) -> tuple[object, str]:
        paid = f.effect("pay", pay, "4711", SECRET, key="4711", require_approval=True)
        return paid, f.ask("publish", "Publish?", options=("yes", "no")).option

    world.answer(world.asked(body), "Approve")
    world.answer(world.asked(body), "It did not happen")
    world.answer(world.asked(body), "yes")
    assert world.task.run(body) == ({"paid": "4711"}, "yes")
    assert world.task.run(body) == ({"paid": "4711"}, "yes")
    assert SENT == ["4711", "4711"]
    assert world.inbox.waiting() == []


def test_a_window_and_an_expiry_are_counted_by_the_databases_clock(world: World) -> None:
    with pytest.raises(EffectInDoubtError):
        world.task.run(paying(on_in_doubt="hold"))
    form = world.asked(paying(on_in_doubt="retry", retry_window=0.000001))
    assert "remembers our key" in form.body
    world.answer(form, "It happened")
    assert world.task.run(paying(dedup_ttl=0.000001)) is None
    other = DurableTask(
        ledger=world.ledger, clock=SystemClock(), settings=world.task.settings, run_id="other", secrets=(SECRET,)
    )
    assert other.run(paying(dedup_ttl=86_400)) is None
    assert other.run(paying(dedup_ttl=0.000001)) == {"paid": "4711"}
    assert SENT == ["4711", "4711"]
