"""
Documents that lie on every machine: the licence texts of the installed Python distributions.

They are real contracts, written by lawyers, some of them long.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions
from pathlib import Path

_LICENCE = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)
_METADATA_FOLDER = re.compile(r"[^/]+\.dist-info/(?:licen[cs]es/)?")


def installed_licences() -> list[tuple[str, Path]]:
    """
    Find the licence texts.

    :return: a name such as ``requests/LICENSE`` and the path of each, every path once.
    """
    found: dict[Path, str] = {}
    for distribution in distributions():
        for name, path in _of(distribution):
            found.setdefault(path.resolve(), name)
    return sorted((name, path) for path, name in found.items())


def _of(distribution: Distribution) -> list[tuple[str, Path]]:
    # `metadata` has no name where an installation was broken off.
    project = str(distribution.metadata["Name"] or "unknown")
    found = []
    for file in distribution.files or ():
        place = _METADATA_FOLDER.match(file.as_posix())
        if place and _LICENCE.match(file.name):
            found.append((f"{project}/{file.as_posix()[place.end() :]}", Path(str(distribution.locate_file(file)))))
    return found
