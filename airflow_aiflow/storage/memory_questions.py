"""The inbox's questions on the memory ledger's tables; each function is called under the ledger's lock."""

from __future__ import annotations

from dataclasses import replace

from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.inbox import Answer, Question, QuestionWrite
from airflow_aiflow.storage.answers import not_ours
from airflow_aiflow.storage.memory_tables import QuestionRow, Tables, check, check_effect
from airflow_aiflow.storage.text import effect_identity, exact, shown


def ask(tables: Tables, lease: Lease, write: QuestionWrite) -> Question:
    """Put a question into the inbox, or find it there."""
    stored = _storable(write)
    if not tables.live(lease):
        raise not_ours(lease)
    for row in tables.questions.values():
        if row.write.bound_to == write.bound_to:
            if row.answer is None:
                row.execution_pk, row.turn = lease.execution_pk, next(tables.turns)
            return read(tables, row)
    intent_id = write.intent_id
    check("a question's intent is there", intent_id is None or intent_id in tables.intents)
    now, turn = tables.clock.monotonic(), next(tables.turns)
    row = QuestionRow(next(tables.numbers), stored, lease.execution_pk, now, turn, turn)
    tables.questions[row.number] = row
    return read(tables, row)


def read(tables: Tables, row: QuestionRow) -> Question:
    """Give a question with its answer."""
    write, answer = row.write, None
    if row.answer is not None:
        answer = Answer(row.answer, by=row.answered_by, at=tables.moment(row.answered_at), note=row.note)
    passed = tables.clock.monotonic() - row.asked_at
    return Question(
        number=row.number,
        kind=write.kind,
        name=write.name,
        execution=tables.by_pk[row.execution_pk].execution,
        subject=write.subject,
        body=write.body,
        options=write.options,
        assigned_users=write.assigned_users,
        asked_at=tables.moment(row.asked_at),
        time_left=None if write.timeout is None else write.timeout - passed,
        answer=answer,
        effect=write.effect,
        intent_id=write.intent_id,
    )


def _storable(write: QuestionWrite) -> QuestionWrite:
    if write.effect is not None:
        effect_identity(write.effect)
        check_effect(write.effect)
    return replace(
        write,
        name=exact(write.name, "name of a question"),
        subject=shown(write.subject),
        body=shown(write.body),
        options=tuple(exact(option, "option of a question") for option in write.options),
        assigned_users=tuple(shown(user) for user in write.assigned_users),
    )
