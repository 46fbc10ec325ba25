"""
A stream of an artifact's bytes that can't end wrongly.

The bytes that complete the artifact are given out only after the whole has been hashed and found right; else the read
fails, and so does every later one. Whoever reads less than all has read unverified bytes.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from airflow_aiflow.exceptions import ArtifactDamagedError, ArtifactError, ArtifactUnavailableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Bytes asked of the network at once, and kept ahead of a reader that takes less.
CHUNK: Final = 256 << 10


class Body(Protocol):
    """Where the bytes come from."""

    @property
    def total(self) -> int | None:
        """Give the size of the whole artifact in bytes, as the store tells it; ``None``: not told."""

    def read_at(self, position: int, size: int) -> bytes:
        """
        Read on; positions only grow.

        :param position: where the last read ended.
        :param size: at most so many bytes.
        :return: empty at the artifact's end only.
        """

    def close(self) -> None:
        """Give back what it holds."""


class VerifiedReader(io.RawIOBase):
    """
    Read an artifact once, from its beginning to its end.

    :param sha256: what the bytes must hash to.
    :param damaged: makes the error of what was found instead, such as "3 bytes whose SHA-256 is ...".
    """

    def __init__(self, sha256: bytes, body: Body, damaged: Callable[[str], ArtifactDamagedError]) -> None:
        self._sha256 = sha256
        self._body = body
        self._damaged = damaged
        self._digest = hashlib.sha256()
        self._position = 0
        self._ended = False
        self._failure: ArtifactError | None = None

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """
        Fill a buffer.

        :raises ArtifactDamagedError: the artifact's last bytes are here and the whole does not hash to its address.
        """
        if self.closed:
            raise ValueError("read of a closed artifact")
        if self._failure is not None:
            # What a failed read had gathered is lost with it: going on would give bytes with a hole.
            raise self._failure
        if self._ended:
            return 0
        view = memoryview(buffer).cast("B")
        try:
            piece = self._next(len(view))
        except BaseException as error:
            self._failure = error if isinstance(error, ArtifactError) else _interrupted()
            raise
        view[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        """Give the connection back; the rest of the artifact is not read."""
        if not self.closed:
            self._body.close()
        super().close()

    def _next(self, size: int) -> bytes:
        piece = self._body.read_at(self._position, size)
        self._digest.update(piece)
        self._position += len(piece)
        if not piece or self._position == self._body.total:
            self._ended = True
            self._body.close()
            found = self._digest.digest()
            if found != self._sha256:
                raise self._damaged(f"{self._position} bytes whose SHA-256 is {found.hex()}")
        return piece


def _interrupted() -> ArtifactError:
    return ArtifactUnavailableError("an earlier read of this stream was interrupted: open the artifact anew")


def verified(sha256: bytes, body: Body, damaged: Callable[[str], ArtifactDamagedError]) -> io.BufferedReader:
    """
    Open a verified stream.

    :param sha256: what the bytes must hash to.
    :param damaged: makes the error of what was found instead.
    """
    return io.BufferedReader(VerifiedReader(sha256, body, damaged), CHUNK)
