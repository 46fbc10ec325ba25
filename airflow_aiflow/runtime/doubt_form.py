"""
What a person reads before saying whether a call happened: the question in the inbox, and the form that is its door.

A form lists every doubt of this execution whose owner is gone, so that all of them are answered at once. An answer to
a doubt that its own policy would have settled is harmless: each word is a compare-and-set on its intent.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import OWN_KEY, EffectId, idempotency_key
from airflow_aiflow.durable.inbox import DID_NOT_HAPPEN, FAIL, HAPPENED, Form, Question
from airflow_aiflow.exceptions import AiflowError
from airflow_aiflow.runtime.process import is_dead
from airflow_aiflow.runtime.replay import OPEN_STATES
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session

#: Most doubts that one form lists: more are answered one by one, in the inbox.
LISTED = 20

#: Most open intents that are looked at for one form: each costs a query.
LOOKED_AT = 100

#: Most characters of an option: a form shows each on one line.
MAX_OPTION = 200

LOOK_FIRST = "Nothing runs until you answer. Look at the target first."
ONE_BY_ONE = "Answer one by one in the inbox"


@dataclass(frozen=True, slots=True)
class Doubt:
    """
    Hold one effect in doubt as a person reads of it.

    :param found: the effect.
    :param text: some lines.
    """

    found: EffectRecord
    text: str


def shown_key(effect: EffectId) -> str:
    """
    Write an effect's key for people.

    :param effect: its identity.
    """
    return "(no key)" if effect.key == OWN_KEY else effect.key


def gone_how(found: EffectRecord) -> str:
    """
    Say how surely the owner of an intent is gone.

    :param found: the effect; its owner is not at work.
    """
    if is_dead(found.owner) is True:
        return "its process is verified dead"
    return "its process is presumed gone, not verified dead"


def subject_of(found: EffectRecord) -> str:
    """
    Ask in one line.

    :param found: the effect in doubt.
    """
    return f'Did "{found.effect.name}" happen?  {shown_key(found.effect)}'


def describe(session: Session, found: EffectRecord, request: Request | None, *told: str) -> Doubt:
    """
    Write what is known of a call without an outcome.

    :param session: the attempt that asks; masks secrets.
    :param found: the effect.
    :param request: today's, which gives the function; ``None``: it is not known.
    :param told: what else there is to say, such as what ``reconcile=`` found.
    """
    redact = session.services.host.redact
    try:
        recorded = RecordedRequest.read(session.payloads.raw(found.request, found.effect.name))
        call = recorded.readable(request, redact)
        keyed = "" if recorded.keyed else " (it was not handed to the target)"
    except AiflowError as error:
        call, keyed = f"(its request can't be read: {redact(str(error))})", ""
    on = f" on {found.owner.hostname}" if found.owner.hostname else ""
    who = str(found.execution)
    begun = (
        f"{who[:1].upper()}{who[1:]}. Begun {found.intended_at:%Y-%m-%d %H:%M:%S} UTC by attempt "
        f"{found.attempt_number}{on}; {_end(session, found)}."
    )
    lines = [
        f"#{found.number}  {found.effect.name}  {redact(shown_key(found.effect))}",
        begun,
        call,
        f"Idempotency key {idempotency_key(found.effect, found.repeat)}{keyed}",
        *(redact(line) for line in told if line),
    ]
    return Doubt(found, "\n".join(lines))


def _end(session: Session, found: EffectRecord) -> str:
    if found.lease == session.taken.lease and session.taken.failed_over:
        return (
            "the ledger's server became another one while an earlier attempt was at work, and may have lost its last "
            "commits: whether that attempt made this call is not known"
        )
    if found.lease == session.taken.lease:
        return "the call ended without an outcome that is known"
    return gone_how(found)


def others_in_doubt(session: Session, first: EffectRecord) -> list[EffectRecord]:
    """
    Find what else is in doubt of this execution, for one form.

    :param session: the attempt that asks.
    :param first: the effect that made it ask.
    """
    found: list[EffectRecord] = []
    for effect in list(session.replay.open)[:LOOKED_AT]:
        if len(found) >= LISTED:
            break
        if effect == first.effect:
            continue
        now = session.recorder.effect(effect)
        if now is None or now.state not in OPEN_STATES or now.live:
            continue
        if now.state is EffectState.INTENDED:
            left_by_us = now.absent and now.lease.execution_pk == session.taken.lease.execution_pk
            lost = left_by_us or (not now.absent and is_dead(now.owner) is True)
            if not lost and now.gone_in > 0:
                continue  # its owner may be at work
            if not session.recorder.doubt(now.intent_id):
                continue
        found.append(now)
    return found


def doubt_form(question: Question, doubts: list[Doubt]) -> Form:
    """
    Make the form.

    :param question: the first doubt's, whose answer is that the task shall fail.
    :param doubts: the first one and the others.
    """
    numbers = [doubt.found.number for doubt in doubts]
    fail = ((question.number, FAIL),)
    more = ["More may wait in the inbox: aiflow effects list --in-doubt"] if len(doubts) > LISTED else []
    body = "\n\n".join([*(doubt.text for doubt in doubts), *more, LOOK_FIRST])
    if len(doubts) == 1:
        marks = f"(#{numbers[0]})"
        options: dict[str, tuple[tuple[int, str], ...]] = {
            f"{HAPPENED} {marks}": ((numbers[0], "happened"),),
            f"{DID_NOT_HAPPEN} {marks}": ((numbers[0], "did_not_happen"),),
            f"{FAIL} {marks}": fail,
        }
        return Form(question.subject, body, options, question.assigned_users, question.time_left)
    marks = _marks(numbers)
    options = {
        f"All happened {marks}": tuple((number, "happened") for number in numbers),
        f"None happened: run them {marks}": tuple((number, "did_not_happen") for number in numbers),
        f"{ONE_BY_ONE} (#{numbers[0]})": (),
        f"{FAIL} (#{numbers[0]})": fail,
    }
    subject = f"Did these {len(doubts)} happen?  {', '.join(doubt.found.effect.name for doubt in doubts)}"
    return Form(subject[:MAX_OPTION], body, options, question.assigned_users, question.time_left)


def _marks(numbers: list[int]) -> str:
    """Name every number, for what is chosen counts for exactly these."""
    return "(" + ", ".join(f"#{number}" for number in numbers) + ")"
