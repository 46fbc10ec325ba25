"""
Read an object's bytes over a connection that may break.

A body that ends before its announced end is an error of the connection, never the end of the object: it is asked for
again from where it broke. Whether the bytes are the right ones is the reader's matter.
"""

from __future__ import annotations

from contextlib import suppress

import urllib3
from minio import Minio
from urllib3.response import BaseHTTPResponse

from airflow_aiflow.storage.s3_faults import REQUEST_ERRORS
from airflow_aiflow.storage.s3_requests import S3Requests


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
        _discard(response)
    return data


class ResumingBody:
    """
    Read an object in order, opening it anew where the connection broke.

    :param requests: carries the requests out, with its patience for each break.
    :param key: the object.
    :param what: what it is for, to end the sentence "could not ...".
    """

    def __init__(self, requests: S3Requests, key: str, what: str) -> None:
        self._requests = requests
        self._key = key
        self._what = what
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
            _discard(response)

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
            _discard(response)
            raise urllib3.exceptions.ProtocolError(f"asked for the bytes from {position} on, the server sent others")
        self._response = response
        return response


def _length(response: BaseHTTPResponse) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _discard(response: BaseHTTPResponse) -> None:
    with suppress(*REQUEST_ERRORS):
        response.close()
    response.release_conn()
