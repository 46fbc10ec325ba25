"""A folder on this machine's disk: for a first try, and for a disk that all workers share."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from airflow_aiflow.durable.folder import REPLACED
from airflow_aiflow.exceptions import ArtifactMissingError, ArtifactUnavailableError, ItemFileError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Bytes that are read at once.
BUFFER = 1 << 20


class LocalFolder:
    """
    Keep files in a folder, which is made when the first one is stored.

    :param path: absolute.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, name: str, stream: BinaryIO, *, media_type: str, overwrite: bool = False) -> None:
        """Store a file: written beside its place, and moved there."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            stream.seek(0)
            number, beside = tempfile.mkstemp(prefix=".aiflow-", dir=self._path)
            try:
                with os.fdopen(number, "wb") as file:
                    shutil.copyfileobj(stream, file)
                    file.flush()
                    os.fsync(file.fileno())
                Path(beside).chmod(0o640)
                Path(beside).replace(self._path / name)
            except BaseException:
                with suppress(OSError):
                    Path(beside).unlink()
                raise
        except OSError as error:
            raise ArtifactUnavailableError(f"could not store {self.uri(name)}: {error}") from error

    def open(self, name: str) -> BinaryIO:
        """Open a file."""
        try:
            return cast("BinaryIO", io.BufferedReader(_Unchanged(self._path / name, self.uri(name)), BUFFER))
        except FileNotFoundError as error:
            raise ArtifactMissingError(f"{self.uri(name)} is not there") from error
        except OSError as error:
            raise ArtifactUnavailableError(f"could not open {self.uri(name)}: {error}") from error

    def names(self) -> list[str]:
        """Name the files."""
        try:
            return sorted(each.name for each in self._path.iterdir() if each.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ArtifactUnavailableError(f"could not list {self._path}: {error}") from error

    def remove(self, name: str) -> None:
        """Remove a file."""
        try:
            (self._path / name).unlink(missing_ok=True)
        except OSError as error:
            raise ArtifactUnavailableError(f"could not remove {self.uri(name)}: {error}") from error

    def uri(self, name: str) -> str:
        """Give the address of a file."""
        return (self._path / name).as_uri()

    def close(self) -> None:
        """Hold nothing open."""


class _Unchanged(io.FileIO):
    """
    Read a file, and see at each piece that nobody writes into it. One that is moved into its place is another file.

    :param path: of the file.
    :param uri: for messages.
    """

    def __init__(self, path: Path, uri: str) -> None:
        super().__init__(path, "rb")
        self._uri = uri
        self._as_opened = self._now()

    def _now(self) -> tuple[int, int]:
        now = os.fstat(self.fileno())
        return now.st_size, now.st_mtime_ns

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        number = super().readinto(buffer)
        if self._now() != self._as_opened:
            raise ItemFileError(f"could not read {self._uri} whole: {REPLACED}")
        return number
