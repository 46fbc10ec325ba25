"""
Read a part of an object over a connection that may break: what comes is the part that was asked for, or an error.

Not covered: the bytes of a part are not verified, for only the whole has a hash.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import urllib3
from minio import Minio
from urllib3.response import BaseHTTPResponse

from airflow_aiflow.exceptions import ArtifactDamagedError
from airflow_aiflow.storage.s3_download import discard
from airflow_aiflow.storage.s3_faults import REQUEST_ERRORS
from airflow_aiflow.storage.s3_requests import S3Requests

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ObjectPart(io.RawIOBase):
    """
    Read some bytes of an object in order, asking anew from where the connection broke.

    :param requests: carries the requests out, with its patience for each break.
    :param key: the object.
    :param what: what it is for, to end the sentence "could not ...".
    :param first: number of the first byte.
    :param size: bytes.
    :param total: bytes that the whole object must have.
    :param damaged: makes the error of what was found instead.
    """

    def __init__(
        self,
        requests: S3Requests,
        key: str,
        what: str,
        *,
        first: int,
        size: int,
        total: int,
        damaged: Callable[[str], ArtifactDamagedError],
    ) -> None:
        self._requests, self._key, self._what = requests, key, what
        self._position, self._end, self._total = first, first + size, total
        self._damaged = damaged
        self._response: BaseHTTPResponse | None = None

    def open(self) -> None:
        """Ask now, so that a missing object fails here and not at the first read."""
        self._requests.run(self._what, self._opened)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read on."""
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._end - self._position)
        if not wanted:
            return 0
        piece = self._requests.run(self._what, lambda client: self._read(client, wanted))
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def close(self) -> None:
        """Give the connection back."""
        if not self.closed:
            self._drop()
        super().close()

    def _read(self, client: Minio, wanted: int) -> bytes:
        response = self._response or self._opened(client)
        try:
            piece = bytes(response.read(wanted))
            if not piece:
                raise urllib3.exceptions.ProtocolError(f"the body ended at byte {self._position} of {self._end}")
        except REQUEST_ERRORS:
            self._drop()
            raise
        return piece

    def _opened(self, client: Minio) -> BaseHTTPResponse:
        bucket, left = self._requests.settings.bucket, self._end - self._position
        response = client.get_object(bucket, self._key, offset=self._position, length=left)
        said = response.headers.get("content-range", "")
        if response.status != 206 or not said.startswith(f"bytes {self._position}-"):
            discard(response)
            raise urllib3.exceptions.ProtocolError(f"asked for bytes {self._position} on, the server sent others")
        if not said.endswith(f"/{self._total}"):
            discard(response)
            raise self._damaged(f"{said.rpartition('/')[2]} bytes where its reference says {self._total}")
        self._response = response
        return response

    def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            discard(response)
