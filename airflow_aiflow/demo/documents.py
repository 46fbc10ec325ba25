"""
Find and read the documents of a folder, in an order that is the same on every try.

Each real file counts once, whatever links lead to it. What can't be read is listed with the reason, never dropped.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from airflow_aiflow.demo.licences import installed_licences
from airflow_aiflow.demo.reading import PDF, Unreadable, read_text_of, reason_of
from airflow_aiflow.exceptions import AiflowConfigError

SUFFIXES = frozenset({".txt", ".md", PDF})
#: How many reasons an error shows when nothing at all can be read.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Document:
    """
    A document that was read.

    :param name: its path below the folder.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that should be a document and gives no text."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """
    What was found in a folder.

    :param source: the folder, or what stands in its place, for people.
    :param others: how many files of other types lie there; they were left alone.
    """

    source: str
    documents: list[Document]
    skipped: list[Skipped]
    others: int = 0

    @property
    def digest(self) -> str:
        """Name the content: the same documents have the same digest, wherever their folder lies."""
        content = hashlib.sha256()
        for document in self.documents:
            for text in (document.name, document.text):
                content.update(hashlib.sha256(text.encode()).digest())
        return content.hexdigest()[:16]


@dataclass(slots=True)
class _Found:
    files: list[tuple[str, Path]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    others: int = 0


def read_documents(folder: str | None, limit: int | None = None) -> Reading:
    """
    Read every document of a folder and the folders below it.

    :param folder: a folder with ``.txt``, ``.md`` and ``.pdf`` files; ``None``: the licence texts of the Python
        distributions that are installed here.
    :param limit: read at most so many documents.
    :raises AiflowConfigError: the folder is missing, or holds no document that can be read.
    """
    if folder is None:
        source, found = "the licence texts of the installed Python distributions", _Found(installed_licences())
    else:
        source, found = folder, _walk(Path(folder))
    documents: list[Document] = []
    skipped = list(found.skipped)
    for name, path in sorted(found.files):
        if limit is not None and len(documents) >= limit:
            break
        try:
            documents.append(Document(name, read_text_of(path)))
        except Unreadable as reason:
            skipped.append(Skipped(name, str(reason)))
    if not documents:
        raise AiflowConfigError(_nothing(source, skipped, found.others))
    return Reading(source, documents, sorted(skipped, key=lambda each: each.name), found.others)


def _nothing(source: str, skipped: list[Skipped], others: int) -> str:
    if not skipped:
        beside = f" ({others} files of other types lie there)" if others else ""
        return f"there is no document in {source}{beside}: put .txt, .md or .pdf files there, or name another folder"
    reasons = "; ".join(f"{each.name} {each.reason}" for each in skipped[:SHOWN])
    more = f"; and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
    return f"none of the {len(skipped)} documents in {source} can be read: {reasons}{more}"


def _walk(root: Path) -> _Found:
    if not root.is_dir():
        what = "is no folder" if root.exists() else "does not exist"
        raise AiflowConfigError(f"the input folder {_shown(root)} {what}: name a folder of .txt, .md or .pdf files")
    found = _Found()
    seen: set[Path] = set()
    folders = deque([root])
    while folders:
        folder = folders.popleft()
        real = folder.resolve()
        if real in seen:
            found.skipped.append(Skipped(_name(folder, root), "leads to a folder that was read already"))
            continue
        seen.add(real)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            found.skipped.append(Skipped(_name(folder, root), reason_of(error)))
            continue
        # Plain files and folders before links, so that a file has its own name where links lead to it as well.
        folders.extend(_take((Path(entry.path) for entry in entries if not _hidden(entry.name)), root, found, seen))
    return found


def _take(paths: Iterable[Path], root: Path, found: _Found, seen: set[Path]) -> list[Path]:
    """Sort the entries of one folder into documents, skipped ones and others; give the folders among them."""
    folders = []
    for path in sorted(paths, key=lambda each: (each.is_symlink(), each.name)):
        try:
            is_folder, real = path.is_dir(), path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "can't be read: a link that leads to itself"
            found.skipped.append(Skipped(_name(path, root), reason))
            continue
        if is_folder:
            folders.append(path)
        elif path.suffix.lower() not in SUFFIXES:
            found.others += 1
        elif real in seen:
            continue
        else:
            seen.add(real)
            found.files.append((_name(path, root), path))
    return folders


def _hidden(name: str) -> bool:
    return name.startswith(".")


def _name(path: Path, root: Path) -> str:
    return _shown(path.relative_to(root))


def _shown(path: Path) -> str:
    """Give a path as text: file names are bytes, and need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")
