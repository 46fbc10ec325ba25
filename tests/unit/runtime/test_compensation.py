"""Effects taken back: in reverse order, once, with doubt like any effect, and done again under another key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.reconcile import Intent
from airflow_aiflow.exceptions import AttemptAsks, EffectInDoubtError, EffectNotAppliedError, EffectOptionError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.runtime.undo_by_person import PersonsUndo, undo_by_person
from airflow_aiflow.testing import DurableTask


@dataclass
class Order:
    """Be an argument that needs its class to be rebuilt."""

    number: int
    cents: int


@dataclass
class Paid:
    """Be a result that needs its class to be rebuilt."""

    charge: str


class Target:
    """Be what is changed outside; a new one for each test."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.keys: list[str] = []
        self.intents: list[Intent] = []
        self.fails: dict[str, Exception] = {}

    def say(self, what: str) -> None:
        """Take a call."""
        self.did.append(what)
        if what in self.fails:
            raise self.fails[what]


target = Target()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    target.__init__()  # type: ignore[misc]


def pay(ctx: EffectContext, order: Order) -> Paid:
    target.keys.append(ctx.idempotency_key)
    target.say(f"pay {order.number}")
    return Paid(f"ch_{order.number}")


def refund(intent: Intent, paid: Paid) -> None:
    target.intents.append(intent)
    target.say(f"refund {paid.charge} of {intent.request['order'].cents}")


def refund_keyed(ctx: EffectContext, intent: Intent, paid: Paid) -> None:
    target.keys.append(ctx.idempotency_key)
    target.say(f"refund {paid.charge}")


def mail(to: str) -> str:
    target.say(f"mail {to}")
    return to


def task(**options: Any) -> DurableTask:
    return DurableTask(**({"compensate_on_failure": True, "retries": 0} | options))


def body(flow: Flow, *, fail: bool = True, undo: Any = refund, **options: Any) -> str:
    for number in (1, 2):
        flow.effect("pay", pay, Order(number, number * 100), key=f"order/{number}", compensate=undo, **options)
    flow.effect("mail", mail, "a@example.com")
    if fail:
        raise RuntimeError("no stock")
    return "done"


DONE = ["pay 1", "pay 2", "mail a@example.com"]


def record(task: DurableTask, name: str = "pay", key: str = "order/1") -> EffectRecord:
    found = task.ledger.effect(EffectId("dag:dag", name, key))
    assert found is not None
    return found


def test_what_can_be_taken_back_is_in_reverse_order_where_the_task_fails_for_good() -> None:
    one = task()
    with pytest.raises(RuntimeError, match="no stock"):
        one.run(body)
    assert target.did == [*DONE, "refund ch_2 of 200", "refund ch_1 of 100"]
    assert record(one).state is EffectState.COMPENSATED
    assert record(one, "pay/undo").state is EffectState.SUCCEEDED
    first = target.intents[-1]
    assert (first.name, first.key, first.attempt) == ("pay", "order/1", 1)
    assert (first.idempotency_key, first.request) == (target.keys[0], {"order": Order(1, 100)})


def test_nothing_is_taken_back_while_a_try_follows() -> None:
    one = task(retries=2)
    for tries in (1, 2):
        with pytest.raises(RuntimeError):
            one.run(body)
        assert target.did == DONE, tries
    with pytest.raises(RuntimeError):
        one.run(body)
    assert target.did == [*DONE, "refund ch_2 of 200", "refund ch_1 of 100"]


def test_nothing_is_taken_back_without_the_word_or_after_a_success() -> None:
    with pytest.raises(RuntimeError):
        task(compensate_on_failure=False).run(body)
    assert target.did == DONE
    task(run_id="other", dag_id="other").run(lambda flow: body(flow, fail=False))
    assert target.did == [*DONE, *DONE]


def test_what_was_taken_back_is_done_again_after_a_clear_under_another_key() -> None:
    one = task()
    with pytest.raises(RuntimeError):
        one.run(body)
    one.cleared()
    target.did.clear()
    assert one.run(lambda flow: body(flow, fail=False)) == "done"
    assert target.did == ["pay 1", "pay 2"]
    assert len(set(target.keys)) == 4
    assert (record(one).state, record(one).repeat) == (EffectState.SUCCEEDED, 1)


def test_what_was_done_again_is_taken_back_again() -> None:
    one = task()
    for _ in range(3):
        target.did.clear()
        with pytest.raises(RuntimeError):
            one.run(lambda flow: body(flow, undo=refund_keyed))
        assert target.did[-2:] == ["refund ch_2", "refund ch_1"]
        one.cleared()
    # Each payment and each refund has a key of its own.
    assert len(target.keys) == len(set(target.keys)) == 12
    assert record(one).state is EffectState.COMPENSATED


def test_an_undo_that_fails_is_told_and_the_others_go_on() -> None:
    target.fails["refund ch_2 of 200"] = EffectNotAppliedError("too late")
    one = task()
    with pytest.raises(RuntimeError, match="no stock"):
        one.run(lambda flow: body(flow, retries=0))
    assert target.did[-2:] == ["refund ch_2 of 200", "refund ch_1 of 100"]
    assert record(one, key="order/2").state is EffectState.SUCCEEDED
    assert record(one).state is EffectState.COMPENSATED
    assert any("order/2" in line and "was not taken back" in line for line in one.host.warnings)


def test_an_undo_of_unknown_outcome_stays_in_the_inbox_and_is_not_made_twice() -> None:
    target.fails["refund ch_2 of 200"] = ConnectionResetError("cut")
    one = task()
    with pytest.raises(RuntimeError, match="no stock"):
        one.run(body)
    assert target.did[-2:] == ["refund ch_2 of 200", "refund ch_1 of 100"]
    [waits] = one.inbox.waiting()
    assert waits.effect is not None
    assert (waits.effect.effect.name, waits.effect.effect.key) == ("pay/undo", "order/2")
    target.fails.clear()
    one.cleared()
    target.did.clear()
    with pytest.raises(EffectInDoubtError, match=rf"'pay/undo' key order/2 \(#{waits.number}\)"):
        one.run(lambda flow: body(flow, fail=False, on_in_doubt="hold"))
    assert target.did == ["pay 1"]  # taken back before, done again; the other is not sent and not undone
    with pytest.raises(AttemptAsks):
        one.run(lambda flow: body(flow, fail=False))
    one.answer("It did not happen")
    assert one.run(lambda flow: body(flow, fail=False)) == "done"
    assert target.did == ["pay 1"]


@pytest.mark.parametrize("decision", ["happened", "did_not_happen"])
def test_after_a_person_s_word_on_the_undo_the_task_goes_on(decision: Any) -> None:
    target.fails["refund ch_2 of 200"] = ConnectionResetError("cut")
    one = task()
    with pytest.raises(RuntimeError):
        one.run(body)
    [waits] = one.inbox.waiting()
    assert one.inbox.resolve(waits.number, decision, by="ann").counts
    target.fails.clear()
    target.did.clear()
    one.cleared()
    assert one.run(lambda flow: body(flow, fail=False)) == "done"
    assert target.did == (["pay 1", "pay 2"] if decision == "happened" else ["pay 1"])


def test_an_undo_that_surely_did_not_happen_is_made_again_at_the_next_failure() -> None:
    target.fails["refund ch_2 of 200"] = ConnectionResetError("cut")
    one = task()
    with pytest.raises(RuntimeError):
        one.run(body)
    [waits] = one.inbox.waiting()
    one.inbox.resolve(waits.number, "did_not_happen", by="ann")
    target.fails.clear()
    target.did.clear()
    one.cleared()
    with pytest.raises(RuntimeError):
        one.run(body)
    assert target.did == ["pay 1", "refund ch_2 of 200", "refund ch_1 of 100"]


def test_what_another_execution_did_is_not_taken_back() -> None:
    one = task(run_id="first")
    one.run(lambda flow: body(flow, fail=False))
    other = task(run_id="second", ledger=one.ledger, clock=one.clock, store=one.store)
    with pytest.raises(RuntimeError):
        other.run(body)
    assert target.did == [*DONE, "mail a@example.com"]


def test_what_an_earlier_generation_did_is_not_taken_back() -> None:
    one = task(on_clear="fresh")
    one.run(lambda flow: body(flow, fail=False))
    one.cleared()
    with pytest.raises(RuntimeError):
        one.run(body)
    assert target.did == DONE


def test_what_this_attempt_did_not_come_to_is_named() -> None:
    one = task(retries=1)
    with pytest.raises(RuntimeError):
        one.run(body)

    def earlier(flow: Flow) -> None:
        flow.effect("pay", pay, Order(1, 100), key="order/1", compensate=refund)
        raise RuntimeError("earlier")

    with pytest.raises(RuntimeError, match="earlier"):
        one.run(earlier)
    assert target.did == [*DONE, "refund ch_1 of 100"]
    number = record(one, key="order/2").number
    assert any(f"aiflow effects compensate {number}" in line for line in one.host.warnings)


def test_a_doubt_is_no_failure_for_good() -> None:
    """A person's word is waited for; the task is cleared then and goes on."""
    target.fails["mail a@example.com"] = ConnectionResetError("cut")
    one = task()

    def held(flow: Flow) -> None:
        flow.effect("pay", pay, Order(1, 100), key="order/1", compensate=refund)
        flow.effect("mail", mail, "a@example.com", on_in_doubt="hold")

    with pytest.raises(EffectInDoubtError):
        one.run(held)
    assert target.did == ["pay 1", "mail a@example.com"]


def test_a_name_of_an_undo_is_not_an_author_s() -> None:
    with pytest.raises(EffectOptionError, match="/undo"):
        task().run(lambda flow: flow.effect("pay/undo", mail, "a", key="x"))
    assert target.did == []


def test_an_undo_s_request_names_what_it_takes_back_for_people() -> None:
    one = task()
    with pytest.raises(RuntimeError):
        one.run(body)
    undo = record(one, "pay/undo")
    assert undo.request.inline is not None
    text = undo.request.inline.decode()
    assert "test_compensation.refund" in text
    assert target.keys[0] in text
    assert '"undoes"' in text


def lost_refund(intent: Intent, paid: Paid) -> None:
    target.fails["refund"] = ConnectionResetError("the answer was lost")
    target.say("refund")


def taken_back_by_a_person_with_a_lost_answer() -> DurableTask:
    one = task()
    one.run(lambda flow: pay_once(flow))
    found = one.inbox.effect_numbered(1)
    assert found is not None
    with pytest.raises(EffectInDoubtError, match="#2"):
        undo_by_person(one.services, found, PersonsUndo(1, lost_refund, by="ann", reason="wrong amount"))
    one.cleared()
    return one


def pay_once(flow: Flow, **options: Any) -> str:
    return flow.effect("pay", pay, Order(1, 100), key="order/1", **options).charge


@pytest.mark.parametrize("options", [{}, {"compensate": refund}], ids=["no compensate=", "compensate="])
def test_what_a_person_may_have_taken_back_is_neither_replayed_nor_done(options: dict[str, Any]) -> None:
    one = taken_back_by_a_person_with_a_lost_answer()
    with pytest.raises(AttemptAsks, match=r"effect 'pay/undo' key order/1 is in doubt \(#2\)"):
        one.run(lambda flow: pay_once(flow, **options))
    assert target.did == ["pay 1", "refund"]


@pytest.mark.parametrize("options", [{}, {"compensate": refund}], ids=["no compensate=", "compensate="])
@pytest.mark.parametrize(
    ("decision", "did"), [("happened", ["pay 1", "refund", "pay 1"]), ("did_not_happen", ["pay 1", "refund"])]
)
def test_what_is_said_of_a_person_s_undo_decides_whether_it_is_done_again(
    options: dict[str, Any], decision: Any, did: list[str]
) -> None:
    one = taken_back_by_a_person_with_a_lost_answer()
    assert one.inbox.resolve(2, decision, by="ann").counts
    assert one.run(lambda flow: pay_once(flow, **options)) == "ch_1"
    assert target.did == did
    assert record(one).state is EffectState.SUCCEEDED


def test_what_was_in_doubt_when_the_author_took_compensate_away_is_asked_about() -> None:
    one = task()
    with pytest.raises(RuntimeError, match="no stock"):
        one.run(lambda flow: body(flow, undo=lost_refund))
    one.cleared()
    with pytest.raises(AttemptAsks, match="pay/undo"):
        one.run(pay_once)
