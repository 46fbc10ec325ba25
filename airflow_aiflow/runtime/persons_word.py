"""
A person's word on what waits in the inbox: the same whether it comes by a command or by a page.

The word is in the ledger before anybody is told. One that does not count changes nothing and says what stands instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_aiflow.durable.inbox import (
    DID_NOT_HAPPEN,
    FAIL,
    HAPPENED,
    Inbox,
    InboxEntry,
    Question,
    Word,
    give_word,
)
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import AiflowConfigError

if TYPE_CHECKING:
    from airflow_aiflow.storage.payload_cipher import PayloadCipher

DoubtDecision = Literal["happened", "did_not_happen", "fail"]

#: Most bytes of a result that a person gives: it lies in the ledger's row, and people type less.
LARGEST_RESULT = 1024**2

#: What the first two options of a doubt say about its call.
DECISIONS = {HAPPENED: "happened", DID_NOT_HAPPEN: "did_not_happen"}


@dataclass(frozen=True, slots=True)
class Said:
    """
    Tell what became of a person's word.

    :param said: as the ledger has it.
    :param waits: the question of the task that waits for it; ``None``: none does.
    """

    word: Word
    said: str
    waits: Question | None


def find_entry(inbox: Inbox, number: int) -> InboxEntry | None:
    """
    Find what waits under a number.

    :param inbox: the ledger's.
    :param number: of an intent or a question.
    :return: ``None``: nothing waits under it.
    """
    return next((entry for entry in inbox.waiting(after=number - 1, limit=1) if entry.number == number), None)


def resolve(
    inbox: Inbox,
    number: int,
    decision: DoubtDecision,
    *,
    by: str,
    note: str,
    user: str | None = None,
    result: Stored | None = None,
) -> Said:
    """
    Say what became of a call in doubt.

    :param inbox: the ledger's.
    :param number: of the call's intent, or of a question about it.
    :param decision: ``fail``: the waiting task shall fail, the doubt stays.
    :param by: who says so.
    :param note: why.
    :param user: the id that ``assigned_users`` hold; ``None``: ``by`` is it.
    :param result: with ``happened``, what the effect gives from now on.
    """
    entry = find_entry(inbox, number)
    waits = inbox.question(number) if entry is None else entry.question
    if (before := _said_before(inbox, number)) is not None:
        return Said(before, decision, waits)
    if decision == "fail":
        return Said(inbox.answer(number, FAIL, by=by, user=user, note=note), FAIL, waits)
    return Said(inbox.resolve(number, decision, by=by, user=user, note=note, result=result), decision, waits)


def answer(inbox: Inbox, question: Question, option: str, *, by: str, note: str, user: str | None = None) -> Said:
    """
    Answer a question.

    :param inbox: the ledger's.
    :param question: as read.
    :param option: one of its options.
    :param by: who says so.
    :param note: why.
    :param user: the id; ``None``: ``by`` is it.
    """
    said = DECISIONS.get(option, option) if question.kind == "doubt" else option
    return Said(give_word(inbox, question.number, said, by=by, user=user, note=note), option, question)


def stored_result(inbox: Inbox, number: int, result: Any, cipher: PayloadCipher, *, keys: str) -> Stored:
    """
    Store a result that a person gives as a task would: encrypted where the ledger's payloads are.

    :param inbox: the ledger's.
    :param number: of the call's intent, or of a question about it.
    :param result: plain data.
    :param cipher: locks it.
    :param keys: what holds the deployment's keys, for the message.
    :raises AiflowConfigError: if it is too large, or the keys are missing here.
    """
    from airflow_aiflow.durable.payload import encode
    from airflow_aiflow.storage.payload_cipher import MAGIC

    data = encode(result).data
    if len(data) > LARGEST_RESULT:
        raise AiflowConfigError(
            f"the result has {len(data):,} bytes, at most {LARGEST_RESULT:,} are taken here: give a reference to what "
            f"is large. Nothing was changed"
        )
    question = inbox.question(number)
    about = number if question is None or question.effect is None else _number_of(inbox, question)
    effect = inbox.effect_numbered(about)
    if not cipher.active and effect is not None and (effect.request.inline or b"").startswith(MAGIC):
        raise AiflowConfigError(
            f"the payloads of this ledger are encrypted: set {keys} to the deployment's keys, so that the result is as "
            f"well. Nothing was changed"
        )
    return Stored(inline=cipher.lock(data))


def _number_of(inbox: Inbox, question: Question) -> int:
    """Find the number of the call that a question is about."""
    assert question.effect is not None
    found = inbox.effects(name=question.effect.name, key=question.effect.key)
    return next((each.number for each in found if each.intent_id == question.intent_id), question.number)


def _said_before(inbox: Inbox, number: int) -> Word | None:
    """Find the word on a call that stands already, whoever said it: the same one again is no new one."""
    found = next((intent for intent in inbox.intents(number) if intent.number == number), None)
    if found is None or found.decision is None or found.decided_at is None:
        return None
    decision, at = found.decision.replace("_", " "), f"{found.decided_at:%Y-%m-%d %H:%M:%S} UTC"
    return Word(False, f"it was answered by {found.decided_by} at {at}: {decision}")
