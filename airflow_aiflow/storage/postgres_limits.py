"""Limits of model calls, and what is lent of them, in PostgreSQL: each exchange is one statement and one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from uuid import UUID

from airflow_aiflow.durable.limit import Lent, Limit, LimitView, Wish
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import exact


class PostgresLimits(LedgerPart):
    """
    Implement the port ``LimitLedger``.

    :param connections: lends them; may be a ledger's own.
    """

    def exchange(self, name: str, worker: UUID, wish: Wish, *, ttl: float) -> Lent | None:
        """Take what a worker has used, and lend it what is free."""
        params = asdict(wish) | {"name": exact(name, "rate_limit"), "worker": worker, "ttl": ttl}
        rows = self._ask(statement("limit_exchange"), params)
        if not rows:
            return None
        rpm, tpm, concurrency, requests, tokens, slots, others_wait = rows[0]
        return Lent(Limit(name, rpm, tpm, concurrency), requests, tokens, slots, others_wait)

    def set_limit(self, limit: Limit) -> None:
        """Make a limit, or change it."""
        exact(limit.name, "the name of a limit")
        self._ask(statement("limit_set"), asdict(limit))

    def remove_limit(self, name: str) -> bool:
        """Remove a limit."""
        return bool(self._ask(statement("limit_remove"), {"name": exact(name, "the name of a limit")}))

    def limits(self) -> Sequence[LimitView]:
        """List the limits by name."""
        return [LimitView(Limit(*row[:4]), *row[4:]) for row in self._ask(statement("limits"))]
