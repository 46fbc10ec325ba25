"""The contract of an effect's history: every call of it, with what persons said about it."""

from __future__ import annotations

from airflow_aiflow.durable.effect import Intended
from airflow_aiflow.durable.inbox import IntentRecord
from tests.contract.ledger_world import World, a_question, an_effect, an_intent, start


def test_every_call_is_listed_with_what_was_said_about_it(world: World) -> None:
    taken, effect = start(world.ledger, map_index=4), an_effect()
    first, second = an_intent(effect), an_intent(effect, 1)
    assert isinstance(world.ledger.intend(taken.lease, first), Intended)
    world.ledger.doubt(taken.lease, first.intent_id)
    found = world.ledger.effect(effect)
    assert found is not None
    number = found.number
    assert world.inbox.resolve(number, "did_not_happen", by="ANNA", note="not at the bank").counts
    assert isinstance(world.ledger.intend(taken.lease, second), Intended)
    world.ledger.settle(second.intent_id, "succeeded", result=None)
    now = world.ledger.effect(effect)
    assert now is not None
    assert world.inbox.release(now.number, by="BERT", note="again").counts
    one, two = world.inbox.intents(number)
    assert world.inbox.intents(now.number) == [one, two]
    assert (one.number, one.outcome, one.settled_at) == (number, None, None)
    assert (one.decision, one.decided_by, one.note, one.released_by) == (
        "did_not_happen",
        "ANNA",
        "not at the bank",
        None,
    )
    assert one.decided_at is not None
    assert one.begun_at <= one.decided_at
    assert (two.number, two.outcome, two.decision, two.note) == (now.number, "succeeded", None, "")
    assert (two.released_by, two.release_note) == ("BERT", "again")
    assert two.released_at is not None
    assert two.settled_at is not None
    assert two.settled_at <= two.released_at
    assert {(each.execution.map_index, each.attempt_number) for each in (one, two)} == {(4, 1)}


def test_a_number_of_no_call_has_no_history(world: World) -> None:
    taken = start(world.ledger)
    asked = world.ledger.ask(taken.lease, a_question())
    nothing: list[IntentRecord] = []
    assert world.inbox.intents(asked.number) == nothing
    assert world.inbox.intents(2**62) == nothing
