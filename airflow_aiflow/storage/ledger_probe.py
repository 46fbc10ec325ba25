"""
Look at a ledger's database for `aiflow doctor`: who we are there, what we may, and what stands between.

Reads the catalogs and settings, so that it works before there is a schema and where rights are missing. Nothing is
changed. One connection of its own: the pool heals what is to be seen here.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, LiteralString, Self
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_aiflow.storage.connections import DEFAULTS, BoundedConnection, is_direct
from airflow_aiflow.storage.payload_cipher import KEY_ID_BYTES, MAGIC
from airflow_aiflow.storage.postgres_faults import NoTablesError, address, wrap
from airflow_aiflow.storage.rows import Row
from airflow_aiflow.storage.statements import statement

#: Seconds to wait for a notification that is there at once where it comes at all.
NOTIFY_WAIT = 1.0

#: Looks at the clock; the shortest round trip says most.
CLOCK_LOOKS = 5

#: Newest payloads of each table that are looked at: some megabytes at most, for what is inline is small.
PAYLOADS = 1000

Pooling = Literal["direct", "session", "transaction"]


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """
    Hold who we are at the server, and its settings for us, in the order of ``doctor_role.sql``.

    :param owner: whether the role may change or drop tables of ours.
    :param version: ``server_version_num``.
    :param replica: whether the server takes no writes.
    :param there: whether there is a schema of ours.
    """

    role: str
    superuser: bool
    owner: bool
    isolation: str
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    encoding: str
    version: int
    replica: bool
    there: bool


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """
    Compare two clocks.

    :param ahead: seconds that this machine's clock is ahead of the other.
    :param within: seconds by which that may be wrong.
    """

    ahead: float
    within: float


class LedgerProbe:
    """
    Ask one database.

    :param dsn: what libpq takes.
    :raises AiflowConfigError: if the address is none.
    :raises LedgerUnavailableError: if it can't be reached.
    """

    def __init__(self, dsn: str) -> None:
        self.where = address(dsn)
        self._dsn = make_conninfo("", **(dict(DEFAULTS) | conninfo_to_dict(dsn)))
        self._connection = self._connect()

    @classmethod
    def connect(cls, dsn: str) -> Self:
        """Open a probe."""
        return cls(dsn)

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def role(self) -> RoleFacts:
        """Tell who we are and under which settings we work."""
        [row] = self._ask(statement("doctor_role"))
        return RoleFacts(*row)

    def missing_rights(self) -> dict[str, list[str]]:
        """List the rights that our work needs and the role has not: by table, view, sequence or function."""
        found: dict[str, list[str]] = {}
        for of_what, what in self._ask(statement("doctor_missing_rights")):
            found.setdefault(of_what, []).append(what)
        return found

    def revision(self) -> str | None:
        """Give the schema's revision; ``None``: there is no schema of ours."""
        try:
            rows = self._ask(statement("schema_version"))
        except NoTablesError:
            return None
        return None if rows[0][0] is None else str(rows[0][0])

    def clock(self) -> ClockFacts:
        """Compare this machine's clock with the database's."""
        looks = []
        for _ in range(CLOCK_LOOKS):
            before, began = datetime.now(UTC), time.monotonic()
            [(there,)] = self._ask("select clock_timestamp()")
            took = time.monotonic() - began
            looks.append(ClockFacts((before - there).total_seconds() + took / 2, took / 2))
        return min(looks, key=lambda look: look.within)

    def key_ids(self) -> dict[str, int]:
        """Count the newest payloads by the key that encrypts them."""
        params = {"limit": PAYLOADS, "magic": MAGIC, "size": KEY_ID_BYTES}
        return dict(self._ask(statement("doctor_key_ids"), params))

    def pooling(self) -> Pooling:
        """
        Find out what stands between us and the server.

        Behind a pooler a LISTEN is tried: whoever shares connections by transaction loses what it was to hear.
        """
        try:
            if is_direct(self._connection):
                return "direct"
            with closing(self._connect()) as listener:
                word = str(uuid4())
                listener.execute("listen aiflow_doctor")
                # From another connection: on the one that listens, the pooler would pass the answer on with the rest.
                self._connection.execute("select pg_notify('aiflow_doctor', %s)", [word])
                heard = [one.payload for one in listener.notifies(timeout=NOTIFY_WAIT, stop_after=1)]
                listener.execute("unlisten aiflow_doctor")
        except psycopg.Error as fault:
            raise wrap(fault, self.where) from fault
        return "session" if word in heard else "transaction"

    def _connect(self) -> BoundedConnection:
        try:
            return BoundedConnection.connect(self._dsn, autocommit=True, prepare_threshold=None)
        except psycopg.Error as fault:
            raise wrap(fault, self.where) from fault

    def _ask(self, query: LiteralString, params: dict[str, object] | None = None) -> list[Row]:
        try:
            return self._connection.execute(query, params).fetchall()
        except psycopg.Error as fault:
            raise wrap(fault, self.where) from fault
