"""The outbox of callbacks in PostgreSQL: each method is one statement and one commit."""

from __future__ import annotations

from uuid import UUID

from airflow_aiflow.durable.callback import Callback
from airflow_aiflow.durable.submission import SubmissionState
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.rows import utc
from airflow_aiflow.storage.statements import statement

#: Tries, the first one among them: about a day with the back-off of ``callback_due``.
MOST_TRIES = 30


class PostgresCallbacks(LedgerPart):
    """
    Implement the port ``Callbacks``.

    :param connections: lends connections; may be a ledger's own.
    """

    def due(self, *, limit: int) -> list[Callback]:
        """Take some that are due."""
        rows = self._ask(statement("callback_due"), {"limit": limit})
        return [
            Callback(
                callback_id=row[0],
                submission_id=row[1],
                pipeline=row[2],
                state=SubmissionState(row[3]),
                url=row[4],
                tries=row[5],
                ended_at=utc(row[6]),
            )
            for row in rows
        ]

    def delivered(self, callback_id: UUID) -> None:
        """Note that the receiver has it."""
        self._ask(statement("callback_delivered"), {"callback_id": callback_id})

    def failed(self, callback_id: UUID, why: str) -> None:
        """Note that the receiver did not take it."""
        params = {"callback_id": callback_id, "why": why.replace("\0", ""), "most": MOST_TRIES}
        self._ask(statement("callback_failed"), params)
