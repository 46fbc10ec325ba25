"""
Figures from PostgreSQL for dashboards, at a cost that does not grow with the ledger.

What was written is added to running totals by each look, over what came since the one before; what is so now is counted
in small tables and partial indexes; how many rows there are by state comes from the planner's statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from airflow_aiflow.durable.figures import Ended, Figures, StoredCount
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.statements import statement

#: Connections of who looks: one statement after the other.
POOL_SIZE = 1

#: Rows of a partial index that are counted: some milliseconds. Beyond, the exact number helps nobody.
MOST_COUNTED = 10_000

#: Executions of one hour that are looked at: some tens of milliseconds.
MOST_ENDED = 50_000

#: Bytes up to which a table is counted row by row: some tens of thousands of rows, in about ten milliseconds.
SMALL_TABLE = 8 * 1024 * 1024


class PostgresFigures:
    """
    Look at the ledger as a whole.

    :param connections: lends connections.
    :param clock: seconds, to measure a commit.
    """

    def __init__(self, connections: Connections, clock: Callable[[], float] = time.perf_counter) -> None:
        self._connections = connections
        self._ask = connections.ask
        self._clock = clock

    @classmethod
    def connect(cls, dsn: str) -> Self:
        """
        Open the ledger; whether it answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :raises AiflowConfigError: if the address is none.
        """
        return cls(Connections(dsn, POOL_SIZE))

    def look(self, *, small_table: int = SMALL_TABLE) -> Figures:
        """
        Carry the totals on and give all figures.

        :param small_table: bytes up to which a table is counted.
        :raises LedgerUnavailableError: if the database can't be asked.
        :raises LedgerSchemaError: if the tables are not the ones that this code knows.
        """
        self._carry_on()
        totals = {(name, label): value for name, label, value in self._ask(statement("tally"))}
        behind = totals.pop(("behind", ""), 0.0)
        return Figures(
            totals=totals,
            behind=behind,
            now={
                (name, label): number
                for name, label, number in self._ask(statement("figures_now"), {"most": MOST_COUNTED})
            },
            ended=[Ended(*row) for row in self._ask(statement("figures_recent"), {"most": MOST_ENDED})],
            stored=[StoredCount(*row) for row in self._ask(statement("figures_stored"), {"small": small_table})],
            commit_seconds=self._probe(),
        )

    def close(self) -> None:
        """Give the connections back."""
        self._connections.close()

    def _carry_on(self) -> None:
        for since, till in self._ask(statement("tally_window")):
            if since < till:
                self._ask(statement("tally_take"), {"since": since, "till": till})

    def _probe(self) -> float:
        began = self._clock()
        self._ask(statement("figures_probe"))
        return self._clock() - began
