"""
A result as an HTTP body: JSON, or a file's own bytes.

A file is streamed as it lies in the artifact store. So is a large value that is written there as plain JSON: it is read
through once, to know that and its size, and never held as a whole. What JSON does not have (a tag of the payload's, a
class of Airflow's), and what is encrypted, has to be read as a whole: a few at once, and handed out from disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from fastapi.responses import Response

from airflow_aiflow.api.own_threads import OwnThreads
from airflow_aiflow.api.ranged_body import PIECE, SAFE_HEADERS, STORE_THREADS, Content, ranged
from airflow_aiflow.durable.artifact import PAYLOAD_MEDIA_TYPE, ArtifactRef
from airflow_aiflow.durable.artifact_parts import PartialReads
from airflow_aiflow.durable.submission_ports import StoredResult
from airflow_aiflow.storage.payload_cipher import MAGIC

JSON: Final = "application/json"

#: What makes stored JSON more than itself, each by a key: an envelope of the payload's codec, whose first key begins
#: with ``$``, a class of Airflow's serialiser, now and in releases before. In a text the quotes would be escaped.
MARKS: Final = (b'{"$', b'"__classname__":', b'"__type":')

#: Values that are read as a whole at once: each takes several times its size. The way to a part far behind in a value's
#: frame takes as long, and is gone here, too: in the threads that hand pieces out, a few would hold up everybody's.
WHOLE = OwnThreads("large results", 2, waiting=32)

#: Bytes up to which a body that was read as a whole stays in memory.
IN_MEMORY: Final = 1 << 20

#: Values that are remembered as plain JSON, with their size: an address means the same bytes for ever.
REMEMBERED: Final = 1024


class ResultDesk:
    """
    Give results. Safe for use from several threads.

    :param store: gives the artifact store; asked where it is needed.
    """

    def __init__(self, store: Callable[[], PartialReads]) -> None:
        self._store = store
        self._sizes: OrderedDict[bytes, int | None] = OrderedDict()

    async def answer(self, value: Any, headers: Mapping[str, str]) -> Response:
        """
        Write a result.

        :param value: what the task returned.
        :param headers: of the request.
        :raises ArtifactError: if the store can't give it.
        """
        if isinstance(value, ArtifactRef) and value.media_type != PAYLOAD_MEDIA_TYPE:
            content = self._file(value, value.media_type)
        elif isinstance(value, ArtifactRef | StoredResult):
            content = await WHOLE.run(self._stored, value)
        else:
            content = await STORE_THREADS.run(_whole, value)
        return await ranged(content, headers, SAFE_HEADERS)

    def _stored(self, value: ArtifactRef | StoredResult) -> Content:
        """Give a stored value's own bytes where they are the answer, else what they say."""
        if isinstance(value, ArtifactRef):
            sha256 = bytes.fromhex(value.sha256)
            if self._size_of(sha256, self._store().open_file) is not None:
                return self._file(value, JSON)
            from airflow_aiflow.durable.payload import decode

            with self._store().open_file(sha256) as stream:
                return _whole(decode(stream.read()))
        address = value.sha256
        size = None if address is None else self._size_of(address, self._store().open_value)
        if address is None or size is None:
            return _whole(value.read())

        def opened(first: int, _size: int) -> BinaryIO:
            return _behind(self._store().open_value(address), first)

        return Content(address.hex(), size, JSON, opened, WHOLE)

    def _size_of(self, sha256: bytes, opened: Callable[[bytes], BinaryIO]) -> int | None:
        if sha256 in self._sizes:
            return self._sizes[sha256]
        with opened(sha256) as stream:
            size = plain_size(stream)
        self._sizes[sha256] = size
        if len(self._sizes) > REMEMBERED:
            self._sizes.popitem(last=False)
        return size

    def _file(self, ref: ArtifactRef, media_type: str) -> Content:
        def opened(first: int, size: int) -> BinaryIO:
            sha256, store = bytes.fromhex(ref.sha256), self._store()
            if (first, size) == (0, ref.size):
                return store.open_file(sha256)
            return store.open_part(sha256, first, size, total=ref.size)

        return Content(ref.sha256, ref.size, media_type, opened)


def plain_size(stream: BinaryIO) -> int | None:
    """
    Read a stored value through, and count its bytes.

    :param stream: of its encoded form.
    :return: ``None``: it is not plain JSON.
    """
    longest = max(map(len, MARKS)) - 1
    size, tail = 0, b""
    while piece := stream.read(PIECE):
        if not size and piece.startswith(MAGIC):
            return None
        size += len(piece)
        seen = tail + piece
        if any(mark in seen for mark in MARKS):
            return None
        tail = seen[-longest:]
    return size


def _behind(stream: BinaryIO, first: int) -> BinaryIO:
    """Read up to a byte; who goes on where it was cut off waits for that."""
    try:
        while first > 0 and (piece := stream.read(min(PIECE, first))):
            first -= len(piece)
    except BaseException:
        stream.close()
        raise
    return stream


def _whole(value: Any) -> Content:
    body = as_json(value)
    sha256, size = hashlib.sha256(body).hexdigest(), len(body)
    if size <= IN_MEMORY:
        return Content(sha256, size, JSON, lambda first, _size: io.BytesIO(body[first:]))
    kept = tempfile.TemporaryFile()  # noqa: SIM115  # it outlives this call, and is closed with the answer
    kept.write(body)

    def opened(first: int, _size: int) -> BinaryIO:
        kept.seek(first)
        return kept

    return Content(sha256, size, JSON, opened)


def as_json(value: Any) -> bytes:
    """
    Write a value as JSON.

    :param value: what JSON does not have is written as the ledger writes it: tagged, and nothing lost.
    """
    from airflow_aiflow.durable.payload import encode

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError):
        return encode(value).data
