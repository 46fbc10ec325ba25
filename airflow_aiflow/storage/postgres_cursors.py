"""What long cursors rest on, in PostgreSQL: each method is one statement and one commit."""

from __future__ import annotations

import hashlib
import zlib
from typing import Self

from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.statements import statement

#: Connections of an API server's worker.
POOL_SIZE = 1

#: Days after its last use for which a base is kept: a client that comes back later begins anew.
KEPT_DAYS = 30

#: Bytes of a base's id.
ID_BYTES = 16


class PostgresCursors:
    """
    Implement the port ``CursorShelf``.

    :param connections: lends connections; may be a ledger's own.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._ask = connections.ask

    @classmethod
    def connect(cls, dsn: str) -> Self:
        """
        Open the shelf of a ledger; whether it answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :raises AiflowConfigError: if the address is none.
        """
        return cls(Connections(dsn, POOL_SIZE))

    def keep(self, places: str) -> str:
        """Keep positions, and give the name of what is kept; of equal ones it is the same."""
        base_id = hashlib.sha256(places.encode()).digest()[:ID_BYTES]
        self._ask(statement("cursor_keep"), {"base_id": base_id, "places": zlib.compress(places.encode())})
        return base_id.hex()

    def get(self, base: str) -> str | None:
        """Give what is kept under a name; ``None``: nothing, or no longer."""
        found = self._ask(statement("cursor_get"), {"base_id": bytes.fromhex(base)})
        return zlib.decompress(bytes(found[0][0])).decode() if found else None

    def reap(self) -> int:
        """Forget what nobody used for long; give how many."""
        return len(self._ask(statement("cursor_reap"), {"days": KEPT_DAYS}))

    def close(self) -> None:
        """Give the connections back."""
        self._connections.close()
