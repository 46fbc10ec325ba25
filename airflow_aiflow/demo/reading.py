"""
Read the text of one file, or say in one line why that is not possible.

A file that can't be read is no reason to fail a review of hundreds: it is skipped, and the report lists it.

Not covered: a PDF that is a scan holds pictures of words; there is no text recognition here.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Bytes. Long contracts take a few; what is larger is no document that people read.
LARGEST_FILE = 64 << 20
PDF = ".pdf"


class Unreadable(Exception):
    """Say in one line why a file gives no text."""


def read_text_of(path: Path) -> str:
    """
    Read a document.

    :param path: a PDF by its suffix; anything else is text in UTF-8, with a byte order mark or without.
    :return: its text, never blank.
    :raises Unreadable: with the reason.
    """
    content = _content(path)
    text = _pdf(path) if path.suffix.lower() == PDF else _decoded(content)
    if not text.strip():
        raise Unreadable("holds no text: a scan?" if path.suffix.lower() == PDF else "holds nothing but blanks")
    return text


def reason_of(error: OSError) -> str:
    """
    Put a failure of the file system into words.

    :param error: what the system said.
    """
    return f"can't be read: {error.strerror or type(error).__name__}"


def _content(path: Path) -> bytes:
    """Read a file's bytes; anything that is no plain file could block for ever or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise Unreadable("is no regular file")
            if state.st_size > LARGEST_FILE:
                raise Unreadable(f"has {state.st_size >> 20} MiB, more than {LARGEST_FILE >> 20} MiB")
            content = file.read()
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    if not content:
        raise Unreadable("is empty")
    return content


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Guessing another encoding would put wrong words into a contract's review.
        raise Unreadable(f"is not UTF-8: byte 0x{content[error.start]:02X} at position {error.start}") from error


def _pdf(path: Path) -> str:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    try:
        with _quiet(), PdfReader(path) as reader:
            # Many PDFs are encrypted with an empty password: every viewer opens them.
            if reader.is_encrypted and not reader.decrypt(""):
                raise Unreadable("is encrypted: it opens with a password only")
            if not reader.pages:
                raise Unreadable("is a PDF without pages")
            text = "\n\n".join(page.extract_text() for page in reader.pages)
    except Unreadable:
        raise
    except (DependencyError, FileNotDecryptedError, NotImplementedError) as error:
        raise Unreadable(f"is encrypted in a way that can't be opened here: {_first_line(error)}") from error
    except Exception as error:
        # A damaged file can break a parser at any place, with any exception.
        raise Unreadable(f"is a damaged PDF: {_first_line(error)}") from error
    # A PDF's own character tables may give halves of surrogate pairs, which no UTF-8 text can hold.
    return text.encode("utf-8", "replace").decode()


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:120] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the parser's remarks on each damaged object out of the task log; the one that matters is raised."""
    logger = logging.getLogger("pypdf")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
