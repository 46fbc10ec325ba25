"""What was done in a database that transactional effects change, for people: its dedup table is the truth of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg

from airflow_aiflow.durable.identity import EffectId, ExecutionId
from airflow_aiflow.durable.inbox import Word
from airflow_aiflow.storage.answers import check_person
from airflow_aiflow.storage.rows import utc
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import shown


@dataclass(frozen=True, slots=True)
class DoneHere:
    """
    Hold one effect that was done.

    :param act: the very try that did it: what a release is about.
    """

    act: UUID
    effect: EffectId
    execution: ExecutionId
    generation: int
    done_at: datetime


def done_here(
    conninfo: str,
    *,
    dag_id: str | None = None,
    run_id: str | None = None,
    name: str | None = None,
    key: str | None = None,
    limit: int = 200,
) -> list[DoneHere]:
    """
    List what was done, the newest last.

    :param conninfo: a complete address.
    :raises psycopg.Error: if it can't be read.
    """
    wanted = {"dag_id": dag_id, "run_id": run_id, "name": name, "key": key, "limit": limit}
    with psycopg.connect(conninfo) as connection:
        rows = connection.execute(statement("dedup_list"), wanted).fetchall()
    return [
        DoneHere(act, EffectId(space, name, key), ExecutionId(dag, run, task, index), generation, utc(at))
        for act, space, name, key, dag, run, task, index, generation, at in rows
    ]


def release_here(conninfo: str, act: UUID, *, by: str, note: str) -> Word:
    """
    Allow that what a try did is done once more. A compare-and-set: what was done meanwhile is another try's.

    :param conninfo: a complete address, of a role that may delete from the dedup table.
    :param act: the try.
    :param by: who says so.
    :param note: the reason.
    :raises psycopg.Error: if the role may not, or the database can't be reached; nothing was changed.
    """
    check_person(by)
    with psycopg.connect(conninfo) as connection:
        # A table that was made by an earlier release has no place for the word yet.
        connection.execute(statement("dedup_install"))
        if connection.execute(statement("dedup_release"), {"act": act, "by": shown(by), "note": shown(note)}).rowcount:
            return Word(counts=True)
        found = connection.execute(statement("dedup_word"), {"act": act}).fetchone()
    if found is None:
        return Word(False, f"no effect of this database was done by the try {act}: list them again")
    if found[0] == shown(by):
        return Word(counts=True)
    return Word(False, f"it was released by {found[0]} at {utc(found[1]):%Y-%m-%d %H:%M:%S} UTC")
