"""
Take three of the pictures that `make test-ui` made into README and docs, without the empty space below.

    make test-ui
    make pictures
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOTS = ROOT / "build" / "ui"
ASSETS = ROOT / "docs" / "assets"

#: Picture of the tests -> its name in the docs, and how many of its rows are shown.
PICTURES = {
    "timeline-light-1280.png": ("timeline.png", 724),
    "inbox-light-1280.png": ("inbox.png", 600),
    "overview-dark-1280.png": ("overview.png", 560),
}

_SIGNATURE = b"\x89PNG\r\n\x1a\n"

#: Bytes of a pixel by colour type, 8 bits each: what a browser writes.
_PIXEL = {2: 3, 6: 4}


def cropped(png: bytes, rows: int) -> bytes:
    """
    Give the upper part of a picture: a row of a PNG is written against those above it alone.

    :param png: not interlaced, 8 bits a colour.
    :param rows: how many to keep.
    :raises ValueError: if it is another kind of picture.
    """
    if not png.startswith(_SIGNATURE):
        raise ValueError("no PNG")
    at, head, packed = len(_SIGNATURE), b"", b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        head = body if kind == b"IHDR" else head
        packed += body if kind == b"IDAT" else b""
        at += size + 12
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    if depth != 8 or colour not in _PIXEL or interlaced:
        raise ValueError("a PNG of another kind than a browser writes")
    rows = min(rows, height)
    kept = zlib.decompress(packed)[: rows * (1 + width * _PIXEL[colour])]
    chunks = ((b"IHDR", struct.pack(">II", width, rows) + head[8:]), (b"IDAT", zlib.compress(kept, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def main() -> int:
    """Copy them."""
    for shot, (name, rows) in PICTURES.items():
        source = SHOTS / shot
        if not source.exists():
            print(f"{source} is not there: run make test-ui first", file=sys.stderr)
            return 1
        (ASSETS / name).write_bytes(cropped(source.read_bytes(), rows))
        print(f"wrote docs/assets/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
