"""The artifact store as a folder of results: for a batch whose author names none."""

from __future__ import annotations

from typing import BinaryIO

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import ArtifactMissingError
from airflow_aiflow.runtime.files import save_file
from airflow_aiflow.runtime.session import Session


class StoredFolder:
    """
    Keep the files of one attempt, by content hash.

    :param session: the attempt at work.
    :param prefix: of the files' names.
    """

    def __init__(self, session: Session, prefix: str) -> None:
        self._session, self._prefix = session, prefix
        self._refs: dict[str, ArtifactRef] = {}

    def put(self, name: str, stream: BinaryIO, *, media_type: str, overwrite: bool = False) -> None:
        """Store a file."""
        self._refs[name] = save_file(self._session, stream, f"{self._prefix}-{name}", media_type)

    def open(self, name: str) -> BinaryIO:
        """Open a file of this attempt."""
        return self.ref(name).open()

    def ref(self, name: str) -> ArtifactRef:
        """
        Give the reference of a file of this attempt.

        :raises ArtifactMissingError: if it has stored none of that name.
        """
        if name not in self._refs:
            raise ArtifactMissingError(f"this attempt has stored no file {name}")
        return self._refs[name]

    def names(self) -> list[str]:
        """Name none: nothing of earlier attempts is in the way."""
        return []

    def remove(self, name: str) -> None:
        """Leave a file: others may refer to the same bytes."""

    def uri(self, name: str) -> str:
        """Give the address of a file."""
        return self.ref(name).uri

    def close(self) -> None:
        """Hold nothing open."""
