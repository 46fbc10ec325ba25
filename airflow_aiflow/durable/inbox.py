"""
The inbox: what waits for a person, and what persons said.

Doubts and questions share one series of numbers, so that a number in a log line, a form or a command names one thing:
the number of an intent (a doubt about that very call) or of a question. Every answer is a compare-and-set: the first
one wins, and who comes second is told who was first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from airflow_aiflow.durable.effect import Decision, EffectRecord
from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.record import Stored

#: ``doubt``: a task waits for word on an intent; ``approval``: before an effect's first call; ``conflict``: the key was
#: used with another request; ``ask``: a question of the author's own.
QuestionKind = Literal["doubt", "approval", "conflict", "ask"]
PersonDecision = Literal["happened", "did_not_happen"]
_DECISIONS: dict[str, PersonDecision] = {"happened": "happened", "did_not_happen": "did_not_happen"}

#: What a form says of a doubt; what its options mean is the word on the intent, ``FAIL`` the answer to its question.
HAPPENED, DID_NOT_HAPPEN, FAIL = "It happened", "It did not happen: run it", "Fail the task"

#: The options of an approval and of a conflict; ``FAIL`` is the third one of a conflict.
APPROVE, REJECT = "Approve", "Reject"
KEEP, ONCE_MORE = "Keep what was done", "Do it once more with today's request"


@dataclass(frozen=True, slots=True)
class QuestionWrite:
    """
    Hold a question as a task asks it. Asked again with the same ``bound_to`` it is the same question.

    :param name: of the effect, or of the question of the author's own.
    :param bound_to: 32 bytes over what an answer is valid for: kind, effect or execution and generation, request.
    :param effect: ``None`` for a question of the author's own.
    :param intent_id: of a doubt or a conflict: the intent that it is about.
    :param subject: one line, secrets masked.
    :param body: what a person needs to decide, secrets masked.
    :param options: what may be answered, in the order shown.
    :param assigned_users: who may answer; empty: everybody with the right to.
    :param timeout: seconds after which nobody is waited for any more; ``None``: for ever.
    """

    kind: QuestionKind
    name: str
    bound_to: bytes
    subject: str
    body: str
    options: tuple[str, ...]
    effect: EffectId | None = None
    intent_id: UUID | None = None
    assigned_users: tuple[str, ...] = ()
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what a person said: ``option`` is one of the question's, ``by`` who, ``at`` the database's clock."""

    option: str
    by: str
    at: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Hold a question as the ledger keeps it."""

    number: int
    kind: QuestionKind
    name: str
    #: The execution that asked last.
    execution: ExecutionId
    subject: str
    body: str
    options: tuple[str, ...]
    assigned_users: tuple[str, ...]
    asked_at: datetime
    #: Seconds until nobody is waited for; ``None``: for ever; 0 or less: the time is over.
    time_left: float | None
    answer: Answer | None
    effect: EffectId | None = None
    intent_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """
    Tell what became of a person's word.

    :param counts: whether it is this word that stands, also where the same person had said the same before.
    :param why: where it does not count: what stands instead, by whom and since when; for people.
    """

    counts: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """
    Hold one thing that waits: a doubt, with the questions of tasks that wait for it, or a question by itself.

    :param number: of the doubt's intent, or of the question.
    :param effect: the doubt; ``None`` for a question that is about none.
    :param question: ``None`` for a doubt for which no task waits: retries spent, ``hold``, a run that was deleted.
    """

    number: int
    since: datetime
    effect: EffectRecord | None
    question: Question | None


@dataclass(frozen=True, slots=True)
class IntentRecord:
    """Hold one call of an effect, and what was said about it; the worker's and the persons' words side by side."""

    number: int
    begun_at: datetime
    settled_at: datetime | None
    #: ``succeeded`` or ``not_applied``; ``None``: there is no outcome.
    outcome: str | None
    decision: Decision | None
    decided_by: str | None
    decided_at: datetime | None
    #: The reason that came with a person's decision.
    note: str
    released_by: str | None
    released_at: datetime | None
    release_note: str
    execution: ExecutionId
    attempt_number: int


@dataclass(frozen=True, slots=True)
class Form:
    """
    Hold what a door to the inbox shows. Each option's text carries its number: no answer reaches another question.

    :param subject: one line.
    :param body: what a person needs to decide.
    :param options: text -> what it means: pairs of (number, option of that number's question), none for "one by one".
    :param assigned_users: who may answer.
    :param timeout: seconds; ``None``: for ever.
    """

    subject: str
    body: str
    options: dict[str, tuple[tuple[int, str], ...]]
    assigned_users: tuple[str, ...] = ()
    timeout: float | None = None


class Inbox(Protocol):
    """
    The ledger as persons use it: without a lease. Two real implementations, PostgreSQL and memory.

    Any method raises ``LedgerUnavailableError`` where the database can't be asked; a word given twice by the same
    person is one word.
    """

    def waiting(self, *, limit: int = 200, after: int = 0) -> list[InboxEntry]:
        """
        List what waits for a person, by number.

        Doubts of executions that nobody will visit again are among them: also an open intent that was never put in
        doubt, as soon as its owner is presumed gone.

        :param limit: at most so many.
        :param after: only numbers above this one.
        """

    def effects(
        self,
        *,
        dag_id: str | None = None,
        run_id: str | None = None,
        name: str | None = None,
        key: str | None = None,
        limit: int = 200,
        after: int = 0,
    ) -> list[EffectRecord]:
        """
        List effects, the newest last, by the number of the intent that counts.

        :param dag_id: of the execution that wrote the effect's current intent, as ``run_id``.
        """

    def effect_numbered(self, number: int) -> EffectRecord | None:
        """Read the effect that has an intent of this number; ``None``: there is none."""

    def intents(self, number: int) -> list[IntentRecord]:
        """List every call of the effect that has an intent of this number, the first one first; none: there is none."""

    def question(self, number: int) -> Question | None:
        """Read a question."""

    def resolve(
        self,
        number: int,
        decision: PersonDecision,
        *,
        by: str,
        user: str | None = None,
        note: str = "",
        result: Stored | None = None,
        seal: bytes | None = None,
    ) -> Word:
        """
        Say what became of an intent in doubt.

        Counts only where that intent is its effect's current one and in doubt, or open with its owner presumed gone;
        and where tasks wait for the word, if one of them takes it from this user.

        :param number: of the intent, or of a question about it.
        :param by: who says so, for people.
        :param user: the id that ``assigned_users`` hold; ``None``: ``by`` is it.
        :param result: with ``happened``, what the effect gives from now on.
        :param seal: over the result; without one it is a person's word, which ``decision`` says.
        """

    def answer(self, number: int, option: str, *, by: str, user: str | None = None, note: str = "") -> Word:
        """
        Answer a question. For a doubt this is only the word that the waiting task shall fail.

        :param number: of the question; for a doubt its intent's number will do.
        :param by: who says so, for people.
        :param user: the id, which must be among the question's ``assigned_users``, if it has any; ``None``: ``by``.
        """

    def release(self, number: int, *, by: str, note: str) -> Word:
        """
        Allow that a done effect is done once more: ``succeeded -> released``.

        :param number: of the intent that succeeded: a release of what was done meanwhile does not count.
        """


def give_word(inbox: Inbox, number: int, option: str, *, by: str, user: str | None = None, note: str = "") -> Word:
    """
    Say one of the things that a form's option stands for.

    :param inbox: the ledger's.
    :param number: of an intent in doubt, or of a question.
    :param option: ``happened`` or ``did_not_happen`` about an intent; else one of the question's options.
    :param by: who says so.
    :param user: the id; ``None``: ``by`` is it.
    :param note: for people.
    """
    decision = _DECISIONS.get(option)
    if decision is not None:
        question = inbox.question(number)
        if question is None or question.kind == "doubt":
            return inbox.resolve(number, decision, by=by, user=user, note=note)
    return inbox.answer(number, option, by=by, user=user, note=note)
