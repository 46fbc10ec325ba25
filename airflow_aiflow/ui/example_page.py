"""
The files of the example page: how a page uses the JavaScript client, in as few lines as it takes.

The client itself is one file, ``clients/js/aiflow.js`` of the source tree, which an installed package has beside these.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

EXAMPLE = Path(__file__).parent / "example"

CLIENT = "aiflow.js"

#: What the page may ask for, and as what it is told.
MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    CLIENT: "text/javascript; charset=utf-8",
}


@cache
def files() -> dict[str, bytes]:
    """Read the page, once a process."""
    return {name: _path(name).read_bytes() for name in MEDIA_TYPES}


def _path(name: str) -> Path:
    installed = EXAMPLE / name
    return installed if installed.exists() else Path(__file__).parents[2] / "clients" / "js" / name
