"""Say why a person's word does not count: what stands instead, by whom and since when. The same for every inbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.identity import OWN_KEY, EffectId
from airflow_aiflow.durable.inbox import PersonDecision, Question, QuestionKind, Word
from airflow_aiflow.storage.answers import is_assigned, may_say

COUNTS = Word(counts=True)

#: What each decision says, for people.
_SAID = {"happened": "happened", "did_not_happen": "did not happen", "retry": "is to be called again"}

_OUTCOME = {"succeeded": "it happened", "not_applied": "it surely did not happen"}


@dataclass(frozen=True, slots=True)
class IntentStanding:
    """Hold what there is to say about an intent; ``current`` and ``counting`` are numbers of its effect's intents."""

    number: int
    effect: EffectId
    state: EffectState
    current: int
    counting: int
    outcome: str | None
    settled_at: datetime | None
    decision: str | None
    decided_by: str | None
    decided_at: datetime | None
    gone_in: float
    released_by: str | None = None
    released_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Numbered:
    """
    Hold what a number names: an intent, or a question, perhaps about an intent.

    :param question: the question's kind; ``None``: the number is an intent's.
    :param intent: the intent; ``None``: the question is about none.
    """

    question: QuestionKind | None
    intent: IntentStanding | None


def not_resolved(
    number: int, found: Numbered | None, decision: PersonDecision, by: str, user: str, questions: Sequence[Question]
) -> Word:
    """
    Judge a word on an intent that changed nothing.

    :param found: what the number names.
    :param user: who it was by id.
    :param questions: about the intent.
    """
    if found is None:
        return _unknown(number)
    intent = found.intent
    if intent is None:
        return Word(False, f"#{number} is a question about no call: answer it with one of its options")
    if (intent.decision, intent.decided_by) == (decision, by) and not (
        decision == "did_not_happen" and intent.outcome == "succeeded"
    ):
        return COUNTS
    open_now = intent.outcome is None and intent.decision is None and intent.current == intent.number
    if open_now and not may_say(user, questions):
        return _for_others(
            number, user, [name for each in questions if each.answer is None for name in each.assigned_users]
        )
    return Word(False, f"#{intent.number} ({_name(intent)}) {_why_settled(intent)}")


def _why_settled(intent: IntentStanding) -> str:
    if intent.outcome is not None:
        return f"has an outcome since {_when(intent.settled_at)}: {_OUTCOME[intent.outcome]}"
    if intent.decision is not None:
        return f"was answered by {intent.decided_by} at {_when(intent.decided_at)}: {_SAID[intent.decision]}"
    if intent.current != intent.number:
        return f"is not the call that is open now: that is #{intent.current}"
    if intent.state is EffectState.INTENDED:
        return (
            f"is not in doubt: the attempt that makes the call may be at work for another "
            f"{max(intent.gone_in, 0):.0f} s, and nobody decides before"
        )
    return f"is not in doubt: the effect is {intent.state.value}"


def not_released(number: int, found: Numbered | None, by: str) -> Word:
    """
    Judge a release that changed nothing.

    :param found: what the number names.
    """
    if found is None:
        return _unknown(number)
    intent = found.intent
    if intent is None or found.question is not None:
        about = "no call" if intent is None else f"#{intent.number}: release that number"
        return Word(False, f"#{number} is a question about {about}")
    if intent.released_by == by:
        return COUNTS
    return Word(False, f"#{number} ({_name(intent)}) {_why_kept(intent)}")


def _why_kept(intent: IntentStanding) -> str:
    if intent.released_by is not None:
        return f"was released by {intent.released_by} at {_when(intent.released_at)}"
    if intent.counting != intent.number or intent.current != intent.number:
        return f"is not the call that counts now: that is #{intent.counting}. Look at it first"
    return {
        EffectState.INTENDED: "is not done: the call has begun and has no outcome yet",
        EffectState.IN_DOUBT: "is in doubt: say first whether it happened",
        EffectState.FAILED: "has failed and is called again as it is: there is nothing to release",
        EffectState.COMPENSATED: "was undone: the next call does it again as it is",
        EffectState.RELEASED: "is released already",
        EffectState.SUCCEEDED: "has changed meanwhile: look at it again",
    }[intent.state]


def not_answered(
    number: int, questions: list[Question], found: Numbered | None, option: str, by: str, user: str
) -> Word:
    """
    Judge an answer that changed nothing.

    :param questions: those that the number stands for.
    :param found: what the number names, where there are none.
    :param user: who it was by id.
    """
    if not questions:
        if found is None:
            return _unknown(number)
        return Word(False, f"no task waits for an answer about #{number}: say whether it happened")
    question = questions[0]
    if question.answer is not None:
        if (question.answer.option, question.answer.by) == (option, by):
            return COUNTS
        by, at = question.answer.by, question.answer.at
        return Word(False, f"#{number} was answered by {by} at {_when(at)}: {question.answer.option}")
    if option not in question.options:
        return Word(False, f"{option!r} is no option of #{number}: {', '.join(map(repr, question.options))}")
    if not is_assigned(user, question):
        return _for_others(number, user, question.assigned_users)
    return Word(
        False,
        f"#{number} is asked no more, for its task was cleared or has another request now: look into the inbox again",
    )


def _for_others(number: int, user: str, assigned: Sequence[str]) -> Word:
    return Word(False, f"#{number} is for {', '.join(dict.fromkeys(assigned))} to answer, and you are {user}")


def _unknown(number: int) -> Word:
    return Word(False, f"there is no #{number} in this ledger")


def _name(intent: IntentStanding) -> str:
    key = "" if intent.effect.key == OWN_KEY else f" {intent.effect.key}"
    return f"{intent.effect.name}{key}"


def _when(moment: datetime | None) -> str:
    return "?" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
