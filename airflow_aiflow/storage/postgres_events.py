"""The events of runs in PostgreSQL, as readers follow them. Reading locks nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from airflow_aiflow.durable.event_cursor import Cursor, Event
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.exceptions import PayloadError
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.rows import utc
from airflow_aiflow.storage.statements import statement

#: Connections of a server that reads for all its clients: one that looks for news, and some for who comes late.
POOL_SIZE = 4


class PostgresEvents:
    """
    Implement the port ``Events``.

    :param connections: lends connections; may be a ledger's own.
    :param cipher: opens encrypted payloads.
    """

    def __init__(self, connections: Connections, cipher: PayloadCipher) -> None:
        self._connections = connections
        self._cipher = cipher

    @classmethod
    def connect(cls, dsn: str, cipher: PayloadCipher | None = None) -> Self:
        """
        Open the events of a ledger; whether it answers is found out by the first method.

        :param dsn: a ``postgresql://`` URI or ``key=value`` pairs.
        :param cipher: opens encrypted payloads; ``None``: there are none.
        :raises AiflowConfigError: if the address is none.
        """
        return cls(Connections(dsn, POOL_SIZE), cipher or PayloadCipher(()))

    def after_by_run(
        self, runs: Iterable[tuple[str, str]], cursor: Cursor, *, limit: int
    ) -> list[tuple[tuple[str, str], Event]]:
        """Read what is behind a cursor, each event with its run."""
        wanted = list(runs)
        params = {
            "dag_ids": [dag_id for dag_id, _ in wanted],
            "run_ids": [run_id for _, run_id in wanted],
            "pks": [pk for pk, _ in cursor.places],
            "fences": [fence for _, fence in cursor.places],
            "seqs": list(cursor.places.values()),
            "limit": limit,
        }
        return [
            (
                wanted[row[9] - 1],
                Event(
                    execution_pk=row[0],
                    fence=row[1],
                    seq=row[2],
                    task_id=row[3],
                    map_index=row[4],
                    attempt=row[5],
                    at=utc(row[6]),
                    kind=row[7],
                    data=self._data(bytes(row[8])),
                ),
            )
            for row in self._connections.ask(statement("events_after"), params)
        ]

    def _data(self, stored: bytes) -> Any:
        """Open what an event holds: one that can't be opened here must not keep all the others from their readers."""
        try:
            return decode(self._cipher.open(stored, "an event"))
        except PayloadError as error:
            return {"unreadable": str(error)}

    def ends(self, runs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Cursor]:
        """Say where the events of each run end now."""
        wanted = list(runs)
        params = {"dag_ids": [dag_id for dag_id, _ in wanted], "run_ids": [run_id for _, run_id in wanted]}
        found = {run: Cursor() for run in wanted}
        for place, pk, fence, seq in self._connections.ask(statement("events_ends"), params):
            found[wanted[place - 1]].places[pk, fence] = seq
        return found

    def words(self, runs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Give for each run that was handed in what differs once it stands otherwise."""
        wanted = list(runs)
        params = {"dag_ids": [dag_id for dag_id, _ in wanted], "run_ids": [run_id for _, run_id in wanted]}
        return {wanted[place - 1]: word for place, word in self._connections.ask(statement("follow_words"), params)}

    def close(self) -> None:
        """Give the connections back."""
        self._connections.close()
