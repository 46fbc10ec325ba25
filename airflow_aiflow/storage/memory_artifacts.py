"""
The artifact store in memory, for tests: ours and those of people who use this package.

It compresses, hashes and verifies as the real one does, and its faults are switched on by a test.
"""

from __future__ import annotations

import base64
import io
import threading
from typing import BinaryIO

from airflow_aiflow.durable.artifact import checked_media_type
from airflow_aiflow.exceptions import (
    ArtifactDamagedError,
    ArtifactMissingError,
    ArtifactUnavailableError,
    FlowOptionError,
)
from airflow_aiflow.storage.frame_stream import FrameBody
from airflow_aiflow.storage.upload_source import measured
from airflow_aiflow.storage.value_frame import FrameError, pack, unpack
from airflow_aiflow.storage.verified_stream import verified


class MemoryArtifactStore:
    """Keep artifacts in this process. Safe for use from several threads."""

    def __init__(self) -> None:
        #: While true, every call finds the store unreachable.
        self.unavailable = False
        self._values: dict[bytes, bytes] = {}
        self._files: dict[bytes, tuple[bytes, str]] = {}
        self._lock = threading.Lock()

    def put_value(self, data: bytes) -> bytes:
        """
        Store an encoded value, compressed.

        :return: the SHA-256 (32 bytes) of the plain bytes.
        """
        self._reach()
        sha256, frame = pack(data)
        with self._lock:
            self._values.setdefault(sha256, frame)
        return sha256

    def get_value(self, sha256: bytes) -> bytes:
        """Read an encoded value back and verify it."""
        self._reach()
        with self._lock:
            frame = self._values.get(sha256)
        if frame is None:
            raise ArtifactMissingError(f"could not read value {_uri('value', sha256)}: it is not there")
        try:
            return unpack(sha256, frame)
        except FrameError as error:
            raise _damaged("value", sha256, str(error)) from error

    def put_file(self, stream: BinaryIO, *, media_type: str) -> tuple[bytes, int]:
        """
        Store bytes as given; a stream is stored whole, from its beginning, where it can seek.

        :return: (SHA-256, size in bytes).
        """
        self._reach()
        media_type = checked_media_type(media_type)
        with measured(stream) as source:
            content = b"".join(source.pieces(max(source.size, 1)))
            with self._lock:
                self._files.setdefault(source.sha256, (content, media_type))
            return source.sha256, source.size

    def open_file(self, sha256: bytes) -> BinaryIO:
        """Open a stored file for reading once, in order; the hash is verified before its last bytes are given out."""
        content, _ = self._file(sha256)
        return verified(sha256, _MemoryBody(content), lambda found: _damaged("file", sha256, found))

    def open_value(self, sha256: bytes) -> BinaryIO:
        """Open an encoded value for reading once, in order; its last bytes come only after the whole was verified."""
        self._reach()
        with self._lock:
            frame = self._values.get(sha256)
        if frame is None:
            raise ArtifactMissingError(f"could not read value {_uri('value', sha256)}: it is not there")

        def damaged(found: str) -> ArtifactDamagedError:
            return _damaged("value", sha256, found)

        return verified(sha256, FrameBody(io.BytesIO(frame), damaged), damaged)

    def open_part(self, sha256: bytes, first: int, size: int, *, total: int) -> BinaryIO:
        """Open a part of a stored file, which is not verified; the size of the whole must be ``total``."""
        content, _ = self._file(sha256)
        if len(content) != total:
            raise _damaged("file", sha256, f"{len(content)} bytes where its reference says {total}")
        return io.BytesIO(content[first : first + size])

    def uri(self, sha256: bytes) -> str:
        """Give the address of a stored file."""
        return _uri("file", sha256)

    def url(self, sha256: bytes, *, expires: float, name: str | None = None, media_type: str | None = None) -> str:
        """
        Give a link that holds the content itself, which a browser opens as it does a real one.

        :param expires: seconds, checked as the real store does; this link works for ever.
        """
        if not 1 <= expires <= 7 * 24 * 3600:
            raise FlowOptionError(
                f"a link to an artifact lives for 1 second to 7 days, got expires={expires!r} seconds"
            )
        content, stored_type = self._file(sha256)
        kind = checked_media_type(media_type or stored_type).replace(" ", "")
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"

    def close(self) -> None:
        """Do nothing: what is stored stays as long as the object."""

    def addresses(self) -> set[str]:
        """Give the address of everything that is stored."""
        with self._lock:
            return {_uri("value", each) for each in self._values} | {_uri("file", each) for each in self._files}

    def corrupt(self, sha256: bytes) -> None:
        """Flip a bit of what is stored under a hash."""
        with self._lock:
            self._require(sha256)
            if sha256 in self._values:
                self._values[sha256] = _flipped(self._values[sha256])
            if sha256 in self._files:
                content, media_type = self._files[sha256]
                self._files[sha256] = (_flipped(content), media_type)

    def lose(self, sha256: bytes) -> None:
        """Remove what is stored under a hash."""
        with self._lock:
            self._require(sha256)
            self._values.pop(sha256, None)
            self._files.pop(sha256, None)

    def _reach(self) -> None:
        if self.unavailable:
            raise ArtifactUnavailableError("the artifact store in memory is switched off by the test")

    def _file(self, sha256: bytes) -> tuple[bytes, str]:
        self._reach()
        with self._lock:
            stored = self._files.get(sha256)
        if stored is None:
            raise ArtifactMissingError(f"could not read file {_uri('file', sha256)}: it is not there")
        return stored

    def _require(self, sha256: bytes) -> None:
        if sha256 not in self._values and sha256 not in self._files:
            raise KeyError(f"nothing is stored under {sha256.hex()}")


class _MemoryBody:
    """Give the bytes as a network would: in order."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)
        self.total: int | None = len(content)

    def read_at(self, position: int, size: int) -> bytes:
        self._stream.seek(position)
        return self._stream.read(size)

    def close(self) -> None:
        self._stream.close()


def _uri(kind: str, sha256: bytes) -> str:
    return f"memory://{kind}/{sha256.hex()}"


def _damaged(kind: str, sha256: bytes, found: str) -> ArtifactDamagedError:
    return ArtifactDamagedError(f"{kind} {_uri(kind, sha256)} is damaged: it holds {found}")


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"\x00"
