"""
Make any binary stream one that can be hashed first and uploaded after, again and again.

A stream is stored whole, from its beginning, wherever its position is: a consumed stream must never become an empty
file. What can be rewound is read twice and never copied; anything else goes through a temporary file.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from airflow_aiflow.exceptions import ArtifactError, PayloadEncodeError

#: Bytes read at once while hashing: large enough to hide the calls, small beside the memory that we may take.
CHUNK: Final = 1 << 20
#: Up to here a stream that can't seek is kept in memory; beyond it a file on disk is cheaper than the memory.
SPOOL_IN_MEMORY: Final = 8 << 20


class Readable(Protocol):
    """What must be there to read."""

    def read(self, size: int, /) -> bytes:
        """Read at most so many bytes."""


class Rewindable(Readable, Protocol):
    """What must be there to read twice."""

    def seek(self, offset: int, /) -> int:
        """Go to an offset from the beginning."""


@dataclass(frozen=True, slots=True)
class Source:
    """
    Hold a stream that can be rewound and what is in it.

    :param sha256: of its bytes, 32 bytes.
    :param size: bytes.
    """

    stream: Rewindable
    sha256: bytes
    size: int

    def pieces(self, size: int) -> Iterator[bytes]:
        """
        Read it from its beginning.

        :param size: bytes of each piece but the last; one piece is held in memory.
        :raises ArtifactError: it no longer holds what was hashed; raised before the last piece is given.
        """
        self.stream.seek(0)
        digest, seen = hashlib.sha256(), 0
        while True:
            piece = _read_full(self.stream, size)
            digest.update(piece)
            seen += len(piece)
            last = len(piece) < size or seen >= self.size
            if last and (seen != self.size or digest.digest() != self.sha256):
                raise ArtifactError(
                    f"the content changed while it was stored, from {self.size} bytes to {seen} with another hash: "
                    "nothing was stored; store it when nobody writes to it any more"
                )
            yield piece
            if last:
                return


@contextmanager
def measured(stream: BinaryIO, temp_dir: str | None = None) -> Iterator[Source]:
    """
    Hash a stream to its end and give it as a source.

    :param stream: read from its beginning where it can be rewound, else from where it is.
    :param temp_dir: where to spool a stream that can't be rewound; ``None``: the system's temporary folder.
    :raises PayloadEncodeError: it gives no bytes.
    """
    if _rewind(stream):
        sha256, size = _hash(stream)
        yield Source(stream, sha256, size)
        return
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY, dir=temp_dir) as spool:
        sha256, size = _hash(stream, into=_Spool(spool, temp_dir or tempfile.gettempdir()))
        yield Source(spool, sha256, size)


def _rewind(stream: BinaryIO) -> bool:
    try:
        if not stream.seekable():
            return False
        stream.seek(0)
    except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Spool:
    """Write to a temporary file, and tell its errors from those of the stream that is read."""

    file: tempfile.SpooledTemporaryFile[bytes]
    folder: str

    def write(self, chunk: bytes) -> None:
        try:
            self.file.write(chunk)
            # What lies in the file's buffer fails later, where nobody expects it.
            self.file.flush()
        except OSError as error:
            raise ArtifactError(
                f"a stream that can't seek could not be spooled to a temporary file in {self.folder} ({error}): make "
                "room there, set TMPDIR to a larger disk, or give a file instead of a stream"
            ) from error


def _hash(stream: Readable, into: _Spool | None = None) -> tuple[bytes, int]:
    digest, size = hashlib.sha256(), 0
    while chunk := _read(stream, CHUNK):
        digest.update(chunk)
        size += len(chunk)
        if into is not None:
            into.write(chunk)
    return digest.digest(), size


def _read(stream: Readable, size: int) -> bytes:
    chunk: object = stream.read(size)
    if not isinstance(chunk, bytes | bytearray | memoryview):
        what = "it has nothing to read yet" if chunk is None else f"read() gives {type(chunk).__name__}"
        raise PayloadEncodeError("stream", f"{what}, and bytes are stored: open it in binary mode ('rb')")
    return bytes(chunk)


def _read_full(stream: Readable, size: int) -> bytes:
    first = _read(stream, size)
    if len(first) == size or not first:
        return first
    pieces, room = [first], size - len(first)
    while room and (piece := _read(stream, room)):
        pieces.append(piece)
        room -= len(piece)
    return b"".join(pieces)
