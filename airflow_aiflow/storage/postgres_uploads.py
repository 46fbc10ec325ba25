"""Uploads in PostgreSQL: each method is one statement and one commit."""

from __future__ import annotations

from uuid import UUID

from airflow_aiflow.durable.upload import Upload
from airflow_aiflow.storage.ledger_part import LedgerPart
from airflow_aiflow.storage.postgres_submissions import uuid7
from airflow_aiflow.storage.rows import utc
from airflow_aiflow.storage.statements import statement

#: Uploads of one user that were announced and never used: more is no use, and each may hold 5 GiB of the store.
MOST_OPEN = 100


class PostgresUploads(LedgerPart):
    """
    Implement the port ``Uploads``.

    :param connections: lends connections; may be a ledger's own.
    """

    def begin(
        self,
        user: str,
        pipeline: str,
        *,
        sha256: bytes,
        size: int,
        media_type: str,
        name: str | None,
        link_seconds: float,
    ) -> Upload | None:
        """Note one."""
        params = {
            "upload_id": uuid7(),
            "user": user,
            "dag_id": pipeline,
            "sha256": sha256,
            "size": size,
            "media_type": media_type,
            "name": name,
            "link_s": link_seconds,
            "most": MOST_OPEN,
        }
        found = self._ask(statement("upload_begin"), params)
        if not found:
            return None
        return Upload(
            upload_id=params["upload_id"],  # type: ignore[arg-type]  # a UUID
            user=user,
            pipeline=pipeline,
            sha256=sha256,
            size=size,
            media_type=media_type,
            name=name,
            expires_at=utc(found[0][0]),
        )

    def find(self, user: str, upload_id: UUID) -> Upload | None:
        """Give one of a user's own."""
        found = self._ask(statement("upload_find"), {"user": user, "upload_id": upload_id})
        if not found:
            return None
        row = found[0]
        return Upload(
            upload_id=row[0],
            user=row[1],
            pipeline=row[2],
            sha256=bytes(row[3]),
            size=row[4],
            media_type=row[5],
            name=row[6],
            expires_at=utc(row[7]),
            checked=row[8],
        )

    def checked(self, upload_id: UUID) -> None:
        """Note that its bytes are what was announced, and in the store."""
        self._ask(statement("upload_checked"), {"upload_id": upload_id})

    def expired(self, *, limit: int) -> list[UUID]:
        """List those that were never used in time."""
        return [row[0] for row in self._ask(statement("upload_expired"), {"limit": limit})]

    def forget(self, upload_id: UUID) -> None:
        """Forget one that was never used."""
        self._ask(statement("upload_forget"), {"upload_id": upload_id})
