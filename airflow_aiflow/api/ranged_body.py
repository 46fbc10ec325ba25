"""A body that is streamed, whole or the range that a client still lacks (RFC 9110): memory does not grow with it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from fastapi.responses import Response, StreamingResponse

from airflow_aiflow.api.own_threads import OwnThreads
from airflow_aiflow.api.problem import problem

#: Bytes that are read at once, and held for each client.
PIECE = 1 << 18

#: Reads from the store at once: each takes milliseconds, or as long as a store that does not answer is waited for.
STORE_THREADS = OwnThreads("reads from the artifact store", 8)

_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")

#: Digits that are read: no body has as many bytes, and to read thousands of them takes a while.
DIGITS = 18

#: Of an answer whose bytes a pipeline made: it is data, whatever it looks like, and never a page of this site.
SAFE_HEADERS = {
    "Cache-Control": "no-cache, private",
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


@dataclass(frozen=True, slots=True)
class Content:
    """
    Hold what is served.

    :param sha256: of all its bytes, in hexadecimal digits: the strong tag.
    :param size: bytes.
    :param media_type: of the answer.
    :param open: gives a part: (first byte, bytes); may wait long.
    :param opens: the threads in which it waits.
    """

    sha256: str
    size: int
    media_type: str
    open: Callable[[int, int], BinaryIO]
    opens: OwnThreads = STORE_THREADS

    @property
    def etag(self) -> str:
        """Give the tag as a header has it."""
        return f'"{self.sha256}"'


async def ranged(content: Content, headers: Mapping[str, str], more: Mapping[str, str]) -> Response:
    """
    Answer with a content, opened before the first byte is sent: what is not there is told by a status.

    :param headers: of the request: ``Range``, ``If-Range`` and ``If-None-Match`` count.
    :param more: headers of the answer.
    """
    base = {**more, "ETag": content.etag, "Accept-Ranges": "bytes"}
    if is_known(content.etag, headers.get("if-none-match")):
        return Response(status_code=304, headers=base)
    status, first, size = 200, 0, content.size
    wanted = headers.get("range")
    # A tag that a proxy made weak, or a date, is no reason to give less than all.
    if wanted is not None and headers.get("if-range", content.etag) == content.etag:
        found = part(wanted, content.size)
        if found is None:
            size_is = {"Content-Range": f"bytes */{content.size}"}
            return problem(416, f"the result has {content.size} bytes", size_is)
        if found != (0, None):
            status, first, last = 206, found[0], found[1] or 0
            size = last - first + 1
            base["Content-Range"] = f"bytes {first}-{last}/{content.size}"
    stream = await content.opens.run(content.open, first, size)
    base["Content-Length"] = str(size)
    return StreamingResponse(_pieces(stream, size), status, headers=base, media_type=content.media_type)


async def _pieces(stream: BinaryIO, size: int) -> AsyncIterator[bytes]:
    """Read on as the client takes it: between two pieces no thread is held."""
    try:
        while size > 0 and (piece := await STORE_THREADS.run(stream.read, min(PIECE, size))):
            size -= len(piece)
            yield piece
    finally:
        stream.close()


def part(text: str, size: int) -> tuple[int, int | None] | None:
    """
    Read the header ``Range``.

    :param text: of a request.
    :param size: bytes of the whole.
    :return: first and last byte; ``(0, None)``: all, as where it is not understood or asks for several parts at once;
        ``None``: nothing of it is there.
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None or found.groups() == ("", ""):
        return 0, None
    start, end = found.groups()
    if not start:
        wanted = _number(end)
        return (max(0, size - wanted), size - 1) if wanted and size else None
    first, last = _number(start), _number(end) if end else size - 1
    if end and last < first:
        return 0, None
    return (first, min(last, size - 1)) if first < size else None


def _number(text: str) -> int:
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= DIGITS else 10**DIGITS


def is_known(tag: str, header: str | None) -> bool:
    """
    Compare weakly (RFC 9110): a proxy that compresses makes the tag a weak one.

    :param tag: as it is now.
    :param header: ``If-None-Match``.
    """
    known = [each.strip().removeprefix("W/") for each in (header or "").split(",")]
    return tag in known or known == ["*"]
