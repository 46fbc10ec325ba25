"""
The browser program: which files there are, and the version that their address bears.

The version is a directory of the address, ``aiflow/static/<version>/main.js``: the modules import each other by
relative names, so one changed file gives all of them a new address, and a browser may keep each for ever.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"

#: What a browser must be told, whatever this machine's own table says: a module of another type is not run.
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: Hexadecimal digits: two versions of one deployment never meet in 48 bits.
DIGITS = 12


@cache
def files() -> dict[str, bytes]:
    """Read the program, once a process: about 200 kB."""
    found = sorted(path for path in STATIC.iterdir() if path.suffix in MEDIA_TYPES)
    return {path.name: path.read_bytes() for path in found}


@cache
def version() -> str:
    """Give the name of this state of the program."""
    digest = hashlib.sha256()
    for name, body in files().items():
        digest.update(f"{name}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()[:DIGITS]
