"""
Read an object's bytes over a connection that may break.

A body that ends before its announced end is an error of the connection, never the end of the object: it is asked for
again from where it broke. Whether the bytes are the right ones is the reader's matter.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING

import urllib3
from minio import Minio
from urllib3.response import BaseHTTPResponse

from airflow_aiflow.durable.folder import REPLACED
from airflow_aiflow.exceptions import ItemFileError
from airflow_aiflow.storage.s3_faults import REQUEST_ERRORS
from airflow_aiflow.storage.s3_requests import S3Requests

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def fetch(client: Minio, bucket: str, key: str) -> bytes:
    """
    Read a whole object into memory, in one request.

    :raises urllib3.exceptions.ProtocolError: the body is shorter or longer than announced.
    """
    response = client.get_object(bucket, key)
    try:
        data = bytes(response.read())
        announced = _length(response)
        if announced is not None and announced != len(data):
            raise urllib3.exceptions.ProtocolError(f"{len(data)} bytes came where {announced} were announced")
    finally:
        discard(response)
    return data


class ResumingBody:
    """
    Read an object in order, opening it anew where the connection broke.

    :param requests: carries the requests out, with its patience for each break.
    :param key: the object.
    :param what: what it is for, to end the sentence "could not ...".
    :param replaceable: whether its name may come to mean other bytes while it is read, which is then an error.
    """

    def __init__(self, requests: S3Requests, key: str, what: str, *, replaceable: bool = False) -> None:
        self._requests = requests
        self._key = key
        self._what = what
        self._replaceable = replaceable
        #: The ETag of what is being read.
        self._tag: str | None = None
        self._response: BaseHTTPResponse | None = None
        self.total: int | None = None

    def open(self) -> None:
        """Ask for the object now, so that a missing one fails here and not at the first read."""
        self._requests.run(self._what, lambda client: self._open(client, 0))

    def read_at(self, position: int, size: int) -> bytes:
        """Read on from a position."""
        return self._requests.run(self._what, lambda client: self._read(client, position, size))

    def close(self) -> None:
        """End the request."""
        response, self._response = self._response, None
        if response is not None:
            discard(response)

    def _read(self, client: Minio, position: int, size: int) -> bytes:
        response = self._response or self._open(client, position)
        try:
            data = bytes(response.read(size))
            if not data and self.total is not None and position < self.total:
                raise urllib3.exceptions.ProtocolError(f"the body ended at byte {position} of {self.total}")
        except REQUEST_ERRORS:
            self.close()
            raise
        return data

    def _open(self, client: Minio, position: int) -> BaseHTTPResponse:
        response = client.get_object(self._requests.settings.bucket, self._key, offset=position)
        if position == 0:
            self.total = _length(response)
        elif response.status != 206 or not response.headers.get("content-range", "").startswith(f"bytes {position}-"):
            discard(response)
            raise urllib3.exceptions.ProtocolError(f"asked for the bytes from {position} on, the server sent others")
        tag = response.headers.get("etag")
        if position == 0:
            self._tag = tag
        elif self._replaceable and tag != self._tag:
            discard(response)
            raise ItemFileError(f"could not {self._what} whole: {REPLACED}")
        self._response = response
        return response


class InOrder(io.RawIOBase):
    """
    Read a body from its beginning to its end.

    :param body: opened; closed with this.
    """

    def __init__(self, body: ResumingBody) -> None:
        self._body = body
        self._position = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read on."""
        view = memoryview(buffer).cast("B")
        piece = self._body.read_at(self._position, len(view))
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def close(self) -> None:
        """Give the connection back."""
        if not self.closed:
            self._body.close()
        super().close()


def _length(response: BaseHTTPResponse) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def discard(response: BaseHTTPResponse) -> None:
    """
    End a request, whatever of its body was read.

    :param response: of the server.
    """
    with suppress(*REQUEST_ERRORS):
        response.close()
    response.release_conn()
