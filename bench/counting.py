"""A ledger that counts its statements: what a resume costs is a number of queries before it is a time."""

from __future__ import annotations

from collections import Counter
from typing import LiteralString

from airflow_aiflow.storage.connections import Connections, Params
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.rows import Row
from airflow_aiflow.storage.statements import statement

#: Statements that do not grow with what is recorded, by the name of their file.
NAMES = (
    "schema_version",
    "standing",
    "take_first",
    "take_over",
    "recorded",
    "record_one",
    "record_many",
    "shared_steps",
    "effect_by_identity",
    "intend",
    "settle",
    "finish",
    "heard",
    "let_go",
    "beat",
)


class CountingConnections(Connections):
    """
    Count statements by the name of their file.

    :param conninfo: of the ledger.
    :param size: most connections at once.
    """

    def __init__(self, conninfo: str, size: int = 4) -> None:
        super().__init__(conninfo, size)
        self.counts: Counter[str] = Counter()
        self._names = {statement(name): name for name in NAMES}

    def ask(self, statement: LiteralString, params: Params | None = None, *, small: bool = False) -> list[Row]:
        """Count, and carry out; heartbeats come by the clock and are left out."""
        name = self._names.get(statement, statement[:40])
        if name != "beat":
            self.counts[name] += 1
        return super().ask(statement, params, small=small)


def counting_ledger(conninfo: str) -> tuple[PostgresLedger, Counter[str]]:
    """
    Open a ledger that counts.

    :param conninfo: of a migrated ledger.
    :return: the ledger, and its statements by name.
    """
    connections = CountingConnections(conninfo)
    return PostgresLedger(connections), connections.counts
