"""The docs' pictures are those of the tests, cut below."""

from __future__ import annotations

import struct
import zlib

import pytest

from tools.pictures import cropped


def png(width: int, height: int, *, depth: int = 8) -> bytes:
    """Write a picture whose rows hold their own number."""
    rows = b"".join(b"\x00" + bytes([row] * 3 * width) for row in range(height))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)),
        (b"tEXt", b"Comment\x00to be left out"),
        (b"IDAT", zlib.compress(rows)[:20]),
        (b"IDAT", zlib.compress(rows)[20:]),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def test_the_upper_rows_are_kept() -> None:
    made = cropped(png(40, 30), 7)
    assert struct.unpack(">II", made[16:24]) == (40, 7)
    size = struct.unpack(">I", made[33:37])[0]
    assert zlib.decompress(made[41 : 41 + size]) == b"".join(b"\x00" + bytes([row] * 120) for row in range(7))
    assert struct.unpack(">II", cropped(png(40, 30), 500)[16:24]) == (40, 30)


def test_another_kind_of_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="no PNG"):
        cropped(b"GIF89a", 1)
    with pytest.raises(ValueError, match="another kind"):
        cropped(png(1, 1, depth=4), 1)
