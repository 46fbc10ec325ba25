"""Ask the ledger for the guard: the driver is loaded when it is needed, and nobody waits for an answer."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any


class GuardLedger:
    """
    Ask the ledger, from a thread that the guard never waits for.

    :param plan: address, statements and lease.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._connection: Any = None
        self._thread: threading.Thread | None = None
        self.trouble: str | None = None

    @property
    def busy(self) -> bool:
        """Whether it is being asked."""
        return self._thread is not None and self._thread.is_alive()

    def ask(self, statement: str, params: dict[str, object], answer: Callable[[bool], None]) -> None:
        """
        Carry a statement out.

        :param statement: name of one of the plan's.
        :param params: beside those of the lease.
        :param answer: told, in the thread, whether it found the lease; not called where the ledger can't be asked.
        """

        def work() -> None:
            try:
                found = self._carry_out(statement, params)
            except Exception as error:  # whatever it is, the next look tries again
                self.trouble = f"{type(error).__name__}: {error}".strip()
                self.close()
            else:
                self.trouble = None
                answer(found)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until it is no longer asked, at most so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _carry_out(self, statement: str, params: dict[str, object]) -> bool:
        plan = self._plan
        if self._connection is None:
            for folder in plan["path"]:
                if folder not in sys.path:
                    sys.path.append(folder)
            import psycopg

            # Behind a pooler in transaction mode nothing may be prepared.
            self._connection = psycopg.connect(plan["conninfo"], autocommit=True, prepare_threshold=None)
        lease = {"execution_id": plan["execution_id"], "fence": plan["fence"]}
        return bool(self._connection.execute(plan[statement].encode(), lease | params).fetchall())
