"""What every view of the ledger shares that has connections of its own, or borrows a ledger's."""

from __future__ import annotations

from typing import ClassVar, Self

from airflow_aiflow.storage.connections import Connections


class LedgerPart:
    """
    Ask a part of the ledger: each method of a subclass is one statement and one commit, unless it says so.

    :param connections: lends connections; may be a ledger's own.
    """

    #: Connections of one that is opened by its address.
    POOL_SIZE: ClassVar[int] = 1

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ask = connections.ask

    @classmethod
    def connect(cls, dsn: str) -> Self:
        """
        Open it; whether the ledger answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :raises AiflowConfigError: if the address is none.
        """
        return cls(Connections(dsn, cls.POOL_SIZE))

    def close(self) -> None:
        """Give the connections back."""
        self._connections.close()
