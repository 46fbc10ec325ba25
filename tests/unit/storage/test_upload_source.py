"""Streams on their way to the store: spooled where they can't be rewound, their own errors left as they are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from airflow_aiflow.exceptions import ArtifactError, PayloadEncodeError
from airflow_aiflow.storage.upload_source import SPOOL_IN_MEMORY, measured


class Once:
    """A stream that can be read and nothing else."""

    def __init__(self, *pieces: bytes | OSError | None) -> None:
        self._pieces = list(pieces)

    def read(self, size: int) -> bytes | None:
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, OSError):
            raise piece
        return piece


def once(*pieces: bytes | OSError | None) -> BinaryIO:
    return cast("BinaryIO", Once(*pieces))


def test_pieces_can_be_had_again_and_again() -> None:
    for stream in (io.BytesIO(b"abcdefg"), once(b"abc", b"defg")):
        with measured(stream) as source:
            for _ in range(2):
                assert list(source.pieces(3)) == [b"abc", b"def", b"g"]
            assert list(source.pieces(7)) == [b"abcdefg"]


def test_nothing_is_one_empty_piece() -> None:
    with measured(once()) as source:
        assert (source.size, list(source.pieces(3))) == (0, [b""])


def test_a_large_stream_goes_through_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    block = bytes(SPOOL_IN_MEMORY // 2 + 1)
    with measured(once(block, block), str(tmp_path)) as source:
        assert source.size == 2 * len(block)
        assert sum(map(len, source.pieces(1 << 20))) == source.size
    assert list(tmp_path.iterdir()) == []


def test_a_spool_without_room_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    block = bytes(SPOOL_IN_MEMORY // 2 + 1)
    with pytest.raises(ArtifactError, match=f"in {gone} .*: make room there"), measured(once(block, block), gone):
        pass


def test_the_stream_s_own_error_passes_as_it_is() -> None:
    broken = OSError(5, "the author's disk")
    with pytest.raises(OSError, match="the author's disk") as passed, measured(once(b"abc", broken)):
        pass
    assert passed.value is broken


def test_a_stream_that_has_nothing_yet_is_refused() -> None:
    with pytest.raises(PayloadEncodeError, match="nothing to read yet"), measured(once(None)):
        pass
