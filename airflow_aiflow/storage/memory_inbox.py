"""
The inbox over the memory ledger's tables, for tests and for authors' unit tests.

It says in Python what ``sql/`` says for PostgreSQL; one contract suite holds them together.
"""

from __future__ import annotations

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.inbox import InboxEntry, IntentRecord, PersonDecision, Question, Word
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.storage import memory_effects, memory_questions
from airflow_aiflow.storage.answers import check_decision, check_person, is_assigned, may_say
from airflow_aiflow.storage.inbox_words import (
    COUNTS,
    IntentStanding,
    Numbered,
    not_answered,
    not_released,
    not_resolved,
)
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.memory_tables import EffectRow, IntentRow, QuestionRow, Tables, WordRow
from airflow_aiflow.storage.text import shown

#: Executions that nobody is at work on.
_STOPPED = frozenset({ExecutionState.PAUSED, ExecutionState.FAILED, ExecutionState.CANCELLED})

#: Signs of attempts that a clear, or the run made again, began.
_CLEARS = ("cleared", "made_again")


class MemoryInbox:
    """
    Implement the protocol ``Inbox`` without a database.

    :param ledger: whose tables it looks into.
    """

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger

    def waiting(self, *, limit: int = 200, after: int = 0) -> list[InboxEntry]:
        """List what waits for a person, by number."""
        with self._ledger.statement() as tables:
            entries = [_doubt(tables, row) for row in tables.effects.values() if _waits(tables, row)]
            entries += [
                InboxEntry(row.number, tables.moment(row.asked_at), None, memory_questions.read(tables, row))
                for row in tables.questions.values()
                if row.answer is None and row.write.kind != "doubt" and not _no_more(tables, row)
            ]
            entries.sort(key=lambda entry: entry.number)
            return [entry for entry in entries if entry.number > after][:limit]

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
        """List effects, the newest last."""
        with self._ledger.statement() as tables:
            found = [
                (memory_effects.read(tables, row), tables.by_pk[row.execution_pk].execution)
                for row in tables.effects.values()
            ]
        wanted = [
            record
            for record, execution in found
            if record.number > after
            and dag_id in (None, execution.dag_id)
            and run_id in (None, execution.run_id)
            and name in (None, record.effect.name)
            and key in (None, record.effect.key)
        ]
        return sorted(wanted, key=lambda record: record.number)[:limit]

    def effect_numbered(self, number: int) -> EffectRecord | None:
        """Read the effect that has an intent of this number."""
        with self._ledger.statement() as tables:
            found = tables.numbered.get(number)
            return None if found is None else memory_effects.read(tables, found[0])

    def intents(self, number: int) -> list[IntentRecord]:
        """List every call of the effect that has an intent of this number."""
        with self._ledger.statement() as tables:
            found = tables.numbered.get(number)
            return [] if found is None else [_record(tables, intent) for intent in found[0].intents]

    def question(self, number: int) -> Question | None:
        """Read a question."""
        with self._ledger.statement() as tables:
            row = tables.questions.get(number)
            return None if row is None else memory_questions.read(tables, row)

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
        """Say what became of an intent in doubt."""
        check_decision(decision, has_result=result is not None)
        check_person(by)
        by, who, given = shown(by), shown(by if user is None else user), None if result is None else (result, seal)
        with self._ledger.statement() as tables:
            found = _intent(tables, number)
            rows = [] if found is None else _questions(tables, found[1].number)
            about = [memory_questions.read(tables, row) for row in rows]
            if found is None or not _undecided(tables, *found) or not may_say(who, about):
                return not_resolved(number, _numbered(tables, number), decision, by, who, about)
            row, intent = found
            memory_effects.apply_decision(tables, row, decision, by, given=given)
            tables.words[intent.number, "resolved"] = WordRow(by, tables.clock.monotonic(), shown(note))
            return COUNTS

    def answer(self, number: int, option: str, *, by: str, user: str | None = None, note: str = "") -> Word:
        """Answer a question."""
        check_person(by)
        option, by, who = shown(option), shown(by), shown(by if user is None else user)
        with self._ledger.statement() as tables:
            rows = _questions(tables, number)
            unanswered = [
                row
                for row in rows
                if row.answer is None
                and option in row.write.options
                and is_assigned(who, memory_questions.read(tables, row))
                and not (row.number == number and _no_more(tables, row))
            ]
            for row in unanswered:
                row.answer, row.answered_by, row.note = option, by, shown(note)
                row.answered_at = tables.clock.monotonic()
            if unanswered:
                return COUNTS
            questions = [memory_questions.read(tables, row) for row in rows]
            return not_answered(number, questions, _numbered(tables, number), option, by, who)

    def release(self, number: int, *, by: str, note: str) -> Word:
        """Allow that a done effect is done once more."""
        check_person(by)
        by = shown(by)
        with self._ledger.statement() as tables:
            found = tables.numbered.get(number)
            if found is None or not memory_effects.let_repeat(tables, *found, by, shown(note)):
                return not_released(number, _numbered(tables, number), by)
            return COUNTS

    def close(self) -> None:
        """Do nothing: there are no connections."""


def _record(tables: Tables, intent: IntentRow) -> IntentRecord:
    resolved, released = (tables.words.get((intent.number, kind)) for kind in ("resolved", "released"))
    settled_at, decided_at = (
        None if moment is None else tables.moment(moment) for moment in (intent.settled_at, intent.decided_at)
    )
    return IntentRecord(
        number=intent.number,
        begun_at=tables.moment(intent.intended_at),
        settled_at=settled_at,
        outcome=intent.outcome,
        decision=intent.decision,
        decided_by=intent.decided_by,
        decided_at=decided_at,
        note="" if resolved is None else resolved.note,
        released_by=None if released is None else released.said_by,
        released_at=None if released is None else tables.moment(released.said_at),
        release_note="" if released is None else released.note,
        execution=tables.by_pk[intent.lease.execution_pk].execution,
        attempt_number=tables.attempts[intent.lease.execution_pk, intent.lease.fence].number,
    )


def _waits(tables: Tables, row: EffectRow) -> bool:
    """Say whether an effect waits for a person: in doubt, or open and left by an execution that lost its attempt."""
    if row.state is EffectState.IN_DOUBT:
        return True
    if row.state is not EffectState.INTENDED or tables.gone_in(row.current) > 0:
        return False
    lease, execution = tables.leases.get(row.execution_pk), tables.by_pk[row.execution_pk]
    if lease is None:
        return execution.state in _STOPPED
    return lease.expires_at < tables.clock.monotonic()


def _doubt(tables: Tables, row: EffectRow) -> InboxEntry:
    intent = row.current
    asked = [each for each in _questions(tables, intent.number) if each.answer is None]
    return InboxEntry(
        number=intent.number,
        since=tables.moment(intent.intended_at),
        effect=memory_effects.read(tables, row),
        question=memory_questions.read(tables, asked[0]) if asked else None,
    )


def _no_more(tables: Tables, row: QuestionRow) -> bool:
    """Say whether its task asks a question no more: it was cleared since, or asked again about another request."""
    cleared = any(
        pk == row.execution_pk and attempt.turn > row.asked_turn and attempt.sign in _CLEARS and not attempt.requeued
        for (pk, _), attempt in tables.attempts.items()
    )
    if cleared or row.write.kind not in ("approval", "conflict"):
        return cleared
    return any(
        later.turn > row.turn
        and later.answer is None
        and later.execution_pk == row.execution_pk
        and (later.write.kind, later.write.effect) == (row.write.kind, row.write.effect)
        for later in tables.questions.values()
    )


def _questions(tables: Tables, number: int) -> list[QuestionRow]:
    """Give the question of a number, or the doubts' questions about an intent of that number, the newest first."""
    if number in tables.questions:
        return [tables.questions[number]]
    if number not in tables.numbered:
        return []
    intent_id = tables.numbered[number][1].intent_id
    about = [row for row in tables.questions.values() if (row.write.kind, row.write.intent_id) == ("doubt", intent_id)]
    return about[::-1]


def _intent(tables: Tables, number: int) -> tuple[EffectRow, IntentRow] | None:
    """Give the intent of a number, or the one that the question of that number is about."""
    asked = tables.questions.get(number)
    if asked is None:
        return tables.numbered.get(number)
    return None if asked.write.intent_id is None else tables.intents[asked.write.intent_id]


def _undecided(tables: Tables, row: EffectRow, intent: IntentRow) -> bool:
    if intent is not row.current or intent.decision is not None or intent.outcome is not None:
        return False
    if row.state is EffectState.INTENDED:
        return tables.gone_in(intent) <= 0
    return row.state is EffectState.IN_DOUBT


def _numbered(tables: Tables, number: int) -> Numbered | None:
    asked, found = tables.questions.get(number), _intent(tables, number)
    if asked is None and found is None:
        return None
    kind = None if asked is None else asked.write.kind
    return Numbered(kind, None if found is None else _standing(tables, *found))


def _standing(tables: Tables, row: EffectRow, intent: IntentRow) -> IntentStanding:
    released = tables.words.get((intent.number, "released"))
    return IntentStanding(
        number=intent.number,
        effect=row.effect,
        state=row.state,
        current=row.current.number,
        counting=row.deciding.number,
        outcome=intent.outcome,
        settled_at=None if intent.settled_at is None else tables.moment(intent.settled_at),
        decision=intent.decision,
        decided_by=intent.decided_by,
        decided_at=None if intent.decided_at is None else tables.moment(intent.decided_at),
        gone_in=tables.gone_in(row.deciding),
        released_by=None if released is None else released.said_by,
        released_at=None if released is None else tables.moment(released.said_at),
    )
