"""Cut a text into pages at the places where a reader would: between paragraphs, else between lines, else words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_aiflow.demo.documents import Document

#: Characters: a densely printed page, as licences and contracts come, has about so many.
PAGE = 6000

#: Where a text may be cut, best first; the separator stays with what stands before it.
_PLACES = (re.compile(r"(?<=\n)(?=[^\S\n]*\n)"), re.compile(r"(?<=\n)"), re.compile(r"(?<=\s)(?=\S)"))


@dataclass(frozen=True, slots=True)
class Page:
    """
    One page of a document.

    :param number: from 1.
    """

    document: str
    number: int
    text: str


def split_into_pages(document: Document, size: int = PAGE) -> list[Page]:
    """
    Cut a document into pages; blank ones are left out, nothing else is lost.

    :param document: what was read.
    :param size: characters that a page has at most.
    """
    texts = [text.strip() for text in cut(document.text, size)]
    return [Page(document.name, number, text) for number, text in enumerate(filter(None, texts), start=1)]


def cut(text: str, size: int) -> list[str]:
    """
    Cut a text into pieces that put together are the text again.

    :param text: any text.
    :param size: characters that a piece has at most.
    """
    return _packed(text, size, 0)


def by_document(pages: Sequence[Page], summaries: Sequence[str]) -> dict[str, list[str]]:
    """
    Put the summaries of the pages together by document.

    :param pages: of several documents.
    :param summaries: one for each page, in the same order.
    :return: the summaries by the document's name, in order.
    """
    found: dict[str, list[str]] = {}
    for page, summary in zip(pages, summaries, strict=True):
        found.setdefault(page.document, []).append(summary)
    return found


def _packed(text: str, size: int, place: int) -> list[str]:
    """Fill pieces with as many parts as fit; a part that alone is too long is cut at the next finer place."""
    if len(text) <= size:
        return [text]
    if place == len(_PLACES):
        return [text[start : start + size] for start in range(0, len(text), size)]
    pieces: list[str] = []
    current = ""
    for part in _PLACES[place].split(text):
        if len(current) + len(part) <= size:
            current += part
            continue
        if current:
            pieces.append(current)
        if len(part) <= size:
            current = part
        else:
            *whole, current = _packed(part, size, place + 1)
            pieces += whole
    return [*pieces, current] if current else pieces
