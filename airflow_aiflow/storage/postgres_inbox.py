"""
The inbox in PostgreSQL: each word is one conditional statement of ``sql/`` and one commit.

Why a word does not count is looked up afterwards, on a fresh snapshot: for people, never to decide anything.
"""

from __future__ import annotations

from typing import Self

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import InboxEntry, IntentRecord, PersonDecision, Question, Word
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.storage.answers import check_decision, check_person
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.inbox_words import (
    COUNTS,
    IntentStanding,
    Numbered,
    not_answered,
    not_released,
    not_resolved,
)
from airflow_aiflow.storage.postgres_params import payload
from airflow_aiflow.storage.rows import Row, effect_record, intent_record, question, utc
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import shown

#: Connections of one who looks into the inbox: a person does one thing at a time.
POOL_SIZE = 2


class PostgresInbox:
    """
    Implement the protocol ``Inbox`` over a pool of connections.

    :param connections: lends them; may be a ledger's own.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ask = connections.ask

    @classmethod
    def connect(cls, dsn: str, *, pool_size: int = POOL_SIZE) -> Self:
        """
        Open an inbox; whether it answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :param pool_size: most connections at once.
        :raises AiflowConfigError: if the address is none.
        """
        return cls(Connections(dsn, pool_size))

    def waiting(self, *, limit: int = 200, after: int = 0) -> list[InboxEntry]:
        """List what waits for a person, by number."""
        return [
            InboxEntry(
                number=number,
                since=utc(since),
                effect=None if effect is None else effect_record(effect),
                question=None if asked is None else question(asked),
            )
            for number, since, effect, asked in self._ask(statement("waiting"), {"limit": limit, "after": after})
        ]

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
        params = {"dag_id": dag_id, "run_id": run_id, "name": name, "key": key, "limit": limit, "after": after}
        by = "effects_by_key" if key is not None else "effects_of_dag" if dag_id is not None else "effects"
        return [effect_record(row[0]) for row in self._ask(statement(by), params)]

    def effect_numbered(self, number: int) -> EffectRecord | None:
        """Read the effect that has an intent of this number."""
        rows = self._ask(statement("effect_numbered"), {"number": number})
        return effect_record(rows[0][0]) if rows else None

    def intents(self, number: int) -> list[IntentRecord]:
        """List every call of the effect that has an intent of this number."""
        return [intent_record(row) for row in self._ask(statement("intents"), {"number": number})]

    def question(self, number: int) -> Question | None:
        """Read a question."""
        rows = self._ask(statement("question_by_number"), {"number": number})
        return question(rows[0][0]) if rows else None

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
        params = _word_params(number, by, note, user) | payload("given", result)
        params |= {"decision": decision, "given_seal": None if result is None else seal}
        if self._ask(statement("resolve"), params):
            return COUNTS
        found, who = self._numbered(number), shown(by if user is None else user)
        about = [] if found is None or found.intent is None else self._ask_questions(found.intent.number)
        return not_resolved(number, found, decision, shown(by), who, about)

    def answer(self, number: int, option: str, *, by: str, user: str | None = None, note: str = "") -> Word:
        """Answer a question."""
        option, who = shown(option), shown(by if user is None else user)
        if self._ask(statement("answer"), _word_params(number, by, note, user) | {"option": option}):
            return COUNTS
        asked = self.question(number)
        about = [asked] if asked else self._ask_questions(number)
        return not_answered(number, about, None if about else self._numbered(number), option, shown(by), who)

    def release(self, number: int, *, by: str, note: str) -> Word:
        """Allow that a done effect is done once more."""
        if self._ask(statement("release"), _word_params(number, by, note)):
            return COUNTS
        return not_released(number, self._numbered(number), shown(by))

    def close(self) -> None:
        """Give the connections back."""
        self._connections.close()

    def _ask_questions(self, number: int) -> list[Question]:
        return [question(row[0]) for row in self._ask(statement("questions_about"), {"number": number})]

    def _numbered(self, number: int) -> Numbered | None:
        rows = self._ask(statement("intent_standing"), {"number": number})
        return _numbered(rows[0]) if rows else None


def _word_params(number: int, by: str, note: str, user: str | None = None) -> dict[str, object]:
    check_person(by)
    return {"number": number, "by": shown(by), "user": shown(by if user is None else user), "note": shown(note)}


def _numbered(row: Row) -> Numbered:
    """Turn a row of the statement ``intent_standing`` into what the number names."""
    (number, outcome, settled_at, decision, decided_by, decided_at, state, namespace, name, key) = row[:10]
    current, counting, gone_in, released_by, released_at, kind = row[10:]
    if number is None:
        return Numbered(kind, None)
    return Numbered(
        kind,
        IntentStanding(
            number=number,
            effect=EffectId(namespace, name, key),
            state=EffectState(state),
            current=current,
            counting=counting,
            outcome=outcome,
            settled_at=None if settled_at is None else utc(settled_at),
            decision=decision,
            decided_by=decided_by,
            decided_at=None if decided_at is None else utc(decided_at),
            gone_in=gone_in,
            released_by=released_by,
            released_at=None if released_at is None else utc(released_at),
        ),
    )
