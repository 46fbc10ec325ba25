"""
Hear from the database which runs have news: one connection of its own for a whole API server's worker.

Behind a pooler LISTEN is taken and does nothing, so what is heard is proved first: who does not hear looks by itself,
more often. Nothing rests on a word that comes: it only makes a look come sooner.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence

import psycopg

from airflow_aiflow.storage.connections import BoundedConnection, Connections, is_direct
from airflow_aiflow.storage.statements import statement

log = logging.getLogger(__name__)

#: Seconds for the own word to come back; on a server that is well it takes a millisecond.
PROBE_SECONDS = 2.0

#: Seconds between two looks at whether to stop.
TURN_SECONDS = 1.0

#: Seconds until a lost connection is made anew.
AGAIN_SECONDS = 2.0

#: Seconds until a connection that does not deliver is tried anew: a pooler stays one.
DEAF_SECONDS = 300.0


class EventListener:
    """
    Listen in a thread of its own.

    :param conninfo: a ``postgresql://`` URI or ``key=value`` pairs.
    :raises AiflowConfigError: if the address is none.
    """

    def __init__(self, conninfo: str) -> None:
        self._conninfo = Connections(conninfo, 1).conninfo
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, heard: Callable[[Sequence[str]], None], hears: Callable[[bool], None]) -> None:
        """
        Begin; both are called from the listener's thread.

        :param heard: gets the marks of runs that have news.
        :param hears: is told whether words come from now on; what came before may have been missed.
        """
        self._thread = threading.Thread(target=self._run, args=(heard, hears), name="aiflow-listen", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End within a second or so; does not wait for it."""
        self._stopped.set()

    def join(self, seconds: float) -> None:
        """
        Wait for the end.

        :param seconds: at most.
        """
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self, heard: Callable[[Sequence[str]], None], hears: Callable[[bool], None]) -> None:
        while not self._stopped.is_set():
            pause = AGAIN_SECONDS
            try:
                with BoundedConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None) as connection:
                    if self._delivers(connection):
                        hears(True)
                        self._listen(connection, heard)
                    else:
                        pause = DEAF_SECONDS
            except psycopg.Error as error:
                log.debug("aiflow: news of events can't be heard now: %s", error)
            except RuntimeError as error:  # the server's loop has ended
                log.debug("aiflow: nobody wants to hear news of events any more: %s", error)
                return
            if not self._stopped.is_set():
                hears(False)
                self._stopped.wait(pause)

    def _delivers(self, connection: BoundedConnection) -> bool:
        if not is_direct(connection):
            return False
        mark = f"probe {secrets.token_hex(8)}"
        connection.execute(statement("event_listen"))
        connection.execute(statement("event_probe"), {"mark": mark})
        return any(each.payload == mark for each in connection.notifies(timeout=PROBE_SECONDS))

    def _listen(self, connection: BoundedConnection, heard: Callable[[Sequence[str]], None]) -> None:
        while not self._stopped.is_set():
            marks = [each.payload for each in connection.notifies(timeout=TURN_SECONDS, stop_after=1)]
            if marks:
                heard(marks)
