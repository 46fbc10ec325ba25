"""
Write the header that names a download.

A name comes from a model, a mail or a person: nothing in it may leave the header, the browser's folder or ASCII.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

#: File systems take 255 bytes; a browser adds " (1)" and an ending of its own while it loads.
_LONGEST_NAME: Final = 180
#: What a browser shows without running anything; all else is offered for saving.
_PASSIVE: Final = frozenset(
    {
        "application/json",
        "application/pdf",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/plain",
    }
)


def file_name(name: str | None, sha256: str) -> str:
    """
    Make a name that is safe as one file's name.

    :param name: as given; the part behind the last slash or backslash counts.
    :param sha256: hex, for a name of our own where nothing is left.
    """
    last = re.split(r"[/\\]", name or "")[-1]
    kept = "".join("_" if _unsafe(character) else character for character in last).strip(" .")
    if len(kept) > _LONGEST_NAME:
        stem, dot, ending = kept.rpartition(".")
        ending = f".{ending}" if dot and len(ending) <= 10 else ""
        kept = (stem if ending else kept)[: _LONGEST_NAME - len(ending)] + ending
    return kept or f"artifact-{sha256[:12]}"


def content_disposition(name: str | None, sha256: str, media_type: str | None) -> str:
    """Give the header's value in ASCII, with the exact name in its encoded form behind the plain one."""
    safe = file_name(name, sha256)
    passive = (media_type or "").partition(";")[0].strip().lower() in _PASSIVE
    plain = "".join(character if " " <= character <= "~" and character not in '"%;' else "_" for character in safe)
    return f"{'inline' if passive else 'attachment'}; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}"


def _unsafe(character: str) -> bool:
    code = ord(character)
    control = code < 0x20 or 0x7F <= code < 0xA0
    # Marks that turn the reading direction: "exe.fdp" would be read as a PDF.
    turning = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in {0x200E, 0x200F, 0x2028, 0x2029}
    return control or turning or 0xD800 <= code <= 0xDFFF or character in '<>:"|?*'
