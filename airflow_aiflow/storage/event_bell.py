"""
Tell who listens that a run has news, right after its events are on disk.

The word is a transaction of its own, never the record's: PostgreSQL commits what holds a NOTIFY one at a time, and each
would wait for the disk of the one before. One that holds nothing else waits for no disk. A word that is lost costs a
reader some seconds, no event: readers look by themselves, too. Only runs that were handed in are told of, since only
those have readers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from airflow_aiflow.durable.event_cursor import is_handed_in
from airflow_aiflow.storage.connections import Params
from airflow_aiflow.storage.rows import Row
from airflow_aiflow.storage.statements import statement

log = logging.getLogger(__name__)

#: Seconds between two words of one process: below what an eye takes for a delay.
GAP_SECONDS = 0.05

#: Seconds until the next word after one that could not be said.
AFTER_FAULT = 2.0

#: Seconds that the end of a ledger waits for the last word.
END_SECONDS = 2.0


class EventBell:
    """
    Ring for the executions of one process. Safe for use from several threads; a thread of its own does the talking.

    :param ask: carries a statement out.
    """

    def __init__(self, ask: Callable[[str, Params], list[Row]]) -> None:
        self._ask = ask
        self._followed: set[int] = set()
        self._due: set[int] = set()
        self._lock = threading.Lock()
        self._rung = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, run_id: str, execution_pk: int) -> None:
        """
        Remember an execution, where somebody may be waiting for it.

        :param run_id: of its run.
        :param execution_pk: its number.
        """
        if is_handed_in(run_id):
            self._followed.add(execution_pk)

    def ring(self, execution_pk: int) -> None:
        """
        Say that it has news; returns at once.

        :param execution_pk: of an execution.
        """
        if execution_pk not in self._followed:
            return
        with self._lock:
            self._due.add(execution_pk)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="aiflow-bell", daemon=True)
                self._thread.start()
        self._rung.set()

    def close(self) -> None:
        """Say what is due, and end."""
        self._closed.set()
        self._rung.set()
        if self._thread is not None:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        over = False
        while not over:
            self._rung.wait()
            self._rung.clear()
            over = self._closed.is_set()
            with self._lock:
                due, self._due = self._due, set()
            pause = GAP_SECONDS
            if due:
                try:
                    self._ask(statement("event_ring"), {"pks": sorted(due)})
                except Exception as error:  # readers look by themselves
                    log.debug("aiflow: nobody was told of new events: %s", error)
                    pause = AFTER_FAULT
            self._closed.wait(pause)
