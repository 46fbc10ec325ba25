"""What long cursors rest on, in PostgreSQL: each method is one statement and one commit."""

from __future__ import annotations

import hashlib
import zlib

from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.statements import statement

#: Days after its last use for which a base is kept: a client that comes back later begins anew.
KEPT_DAYS = 30

#: Bytes of a base's id.
ID_BYTES = 16


class PostgresCursors(LedgerPart):
    """
    Implement the port ``CursorShelf``.

    :param connections: lends connections; may be a ledger's own.
    """

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
