"""Doubts in PostgreSQL that somebody should be told of, and which ones were told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.rows import effect_record
from airflow_aiflow.storage.statements import statement


class PostgresDoubts(LedgerPart):
    """
    Know of effects in doubt that nobody was told of.

    :param connections: lends connections; may be a ledger's own.
    """

    def untold(self, *, grace: float, limit: int) -> Sequence[EffectRecord]:
        """
        List effects in doubt that nobody is at work on and nobody was told of, the oldest first.

        :param grace: seconds for which nobody must have been at work on them.
        :param limit: at most so many.
        """
        return [
            effect_record(row[0]) for row in self._ask(statement("untold_doubts"), {"grace": grace, "limit": limit})
        ]

    def told(self, numbers: Iterable[int]) -> None:
        """
        Note that these doubts were told; again is harmless.

        :param numbers: of their intents.
        """
        self._ask(statement("told"), {"numbers": list(numbers)})

    def number(self) -> int:
        """Count the effects that are in doubt."""
        [(number,)] = self._ask(statement("figures_in_doubt"))
        return int(number)
