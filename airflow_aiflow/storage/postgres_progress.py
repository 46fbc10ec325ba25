"""The progress of runs, out of the leases and the events of their tasks at work."""

from __future__ import annotations

from datetime import datetime

from airflow_aiflow.durable.payload import decode
from airflow_aiflow.durable.progress import RunProgress, Told, progress_of
from airflow_aiflow.exceptions import PayloadError
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.rows import utc
from airflow_aiflow.storage.statements import statement

#: Latest events of a task that are looked through: a map speaks twice a minute, and writes five events a second.
MOST_EVENTS = 300


class PostgresProgress:
    """
    Read how far runs are.

    :param connections: lends connections; may be a ledger's own.
    :param cipher: opens encrypted payloads.
    """

    def __init__(self, connections: Connections, cipher: PayloadCipher) -> None:
        self._ask = connections.ask
        self._cipher = cipher

    def of_run(self, dag_id: str, run_id: str) -> RunProgress | None:
        """
        Tell how far a run is.

        :param dag_id: its DAG.
        :param run_id: its id.
        :return: ``None``: no durable task of it is at work.
        :raises LedgerUnavailableError: if the database can't be asked.
        """
        rows = self._ask(statement("run_progress"), {"dag_id": dag_id, "run_id": run_id, "events": MOST_EVENTS})
        if not rows:
            return None
        told: dict[int, list[Told]] = {row[0]: [] for row in rows}
        for pk, _, at, data, _ in rows:
            said = None if data is None else self._read(utc(at), bytes(data))
            if said is not None:
                told[pk].append(said)
        steps = {row[0]: row[1] for row in rows}
        return progress_of(told.values(), steps.values(), utc(rows[0][4]))

    def _read(self, at: datetime, data: bytes) -> Told | None:
        """Read an event; what can't be opened here, or is an author's own form, says nothing."""
        try:
            plain = decode(self._cipher.open(data, "an event"))
        except PayloadError:
            return None
        if not isinstance(plain, dict) or not isinstance(plain.get("done"), int):
            return None
        total, message = plain.get("total"), plain.get("message")
        return Told(at, plain["done"], total if isinstance(total, int) else None, str(message or ""))
