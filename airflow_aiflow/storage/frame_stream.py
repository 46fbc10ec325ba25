"""A stored value's frame, decompressed piece by piece: memory does not grow with the value."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

import zstandard

from airflow_aiflow.exceptions import ArtifactDamagedError

#: Compressed bytes that are read at once.
PIECE: Final = 64 << 10

#: Bytes of a frame's beginning that surely hold its header.
HEAD: Final = 18

#: Largest window that is taken, in bytes: ours is 2 MiB, and a damaged header must not claim gigabytes.
WINDOW: Final = 1 << 27


class FrameBody:
    """
    Give the plain bytes of a frame in order: a ``Body`` of a verified stream.

    :param compressed: the frame; closed with this.
    :param damaged: makes the error of what was found instead.
    """

    def __init__(self, compressed: io.RawIOBase | io.BytesIO, damaged: Callable[[str], ArtifactDamagedError]) -> None:
        self._source = io.BufferedReader(compressed, PIECE)
        self._damaged = damaged
        try:
            size = zstandard.frame_content_size(self._source.peek(HEAD))
        except zstandard.ZstdError as error:
            self._source.close()
            raise damaged(f"no zstd frame ({error})") from error
        self.total: int | None = size if size >= 0 else None
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        self._plain = decompressor.stream_reader(self._source, read_size=PIECE, closefd=False)

    def read_at(self, position: int, size: int) -> bytes:
        """Read on; a frame that was cut ends early, which its hash tells."""
        try:
            return bytes(self._plain.read(size))
        except zstandard.ZstdError as error:
            raise self._damaged(f"a frame that is damaged behind byte {position} ({error})") from error

    def close(self) -> None:
        """Give back what it holds."""
        self._source.close()
