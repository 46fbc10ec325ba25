"""
Put a content-addressed object whole or not at all.

Small ones go in one request. Larger ones go in parts, one part in memory at a time; the object appears only when its
parts are completed, and an upload that fails is aborted, so that no parts are left to be paid for. A process that is
killed can't abort: whoever next stores the same content removes what it left, *after* the object is there. Then an
upload of a live rival is of no use either, and it finds the object in its place.

The SDK's public ``put_object`` repeats a whole upload where one part failed, does not abort when a signal ends it, and
can't list what was left: its per-request methods are used instead, in this module alone.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import urllib3
from minio import Minio
from minio.datatypes import Part
from minio.error import S3Error

from airflow_aiflow.exceptions import ArtifactError, ArtifactMissingError, ArtifactUnavailableError
from airflow_aiflow.storage.s3_faults import REQUEST_ERRORS, Kind, judge
from airflow_aiflow.storage.s3_requests import S3Requests
from airflow_aiflow.storage.upload_source import Source

#: Up to this size one request; above it parts of this size (S3 wants at least 5 MiB).
PART_SIZE: Final = 8 << 20
#: S3's limit. Not covered: above 80 GB the parts, and with them the memory, grow.
MOST_PARTS: Final = 10_000
#: An upload that loses its parts to a rival, or to a bucket rule, starts again; two rivals can't do it more often.
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class Upload:
    """
    Put one object.

    :param requests: carries the requests out.
    :param key: the object.
    :param what: what it is for, to end the sentence "could not ...".
    :param media_type: its content type.
    """

    requests: S3Requests
    key: str
    what: str
    media_type: str

    def put_bytes(self, data: bytes, *, overwrite: bool = False) -> None:
        """
        Put bytes that are in memory.

        :param overwrite: also where an object of that size is there.
        """
        if len(data) > PART_SIZE:
            self.put_parts(Source(io.BytesIO(data), hashlib.sha256(data).digest(), len(data)), overwrite=overwrite)
            return
        if not overwrite and self._is_there(len(data)):
            return
        tried = False

        def put(client: Minio) -> None:
            nonlocal tried
            # A server may store and then answer with an error, or its answer is lost.
            if tried and not overwrite and self._is_there(len(data)):
                return
            tried = True
            client._put_object(self.requests.settings.bucket, self.key, data, {"Content-Type": self.media_type})

        self.requests.run(self.what, put)

    def put_parts(self, source: Source, *, overwrite: bool = False) -> None:
        """Put a source in parts, one in memory at a time."""
        if overwrite or not self._is_there(source.size):
            for _ in range(ROUNDS):
                if self._upload(source):
                    break
            else:
                raise ArtifactUnavailableError(
                    f"could not {self.what}: {ROUNDS} uploads in parts were taken away before they were complete"
                )
        self._remove_left()

    def _upload(self, source: Source) -> bool:
        """
        Upload all parts and complete them.

        :return: ``False`` where the upload was taken away and the object is not there.
        """
        upload_id = self.requests.run(self.what, self._begin)
        part_size = max(PART_SIZE, -(-source.size // MOST_PARTS))
        parts: list[Part] = []
        try:
            for number, piece in enumerate(source.pieces(part_size), start=1):
                parts.append(Part(number, self._send(upload_id, number, piece)))
            self.requests.run(self.what, lambda client: self._complete(client, upload_id, parts))
        except ArtifactMissingError as error:
            # Taken away by a rival that was faster, or completed by a try whose answer was lost.
            self._abort(upload_id, error)
            return self.requests.run(self.what, self._size) == source.size
        except BaseException as error:
            self._abort(upload_id, error)
            raise
        # Some servers answer 200 and put an error into the body, which the SDK does not look at.
        return self.requests.run(self.what, self._size) in {source.size, None}

    def _begin(self, client: Minio) -> str:
        headers: dict[str, str | list[str] | tuple[str]] = {"Content-Type": self.media_type}
        return client._create_multipart_upload(self.requests.settings.bucket, self.key, headers)

    def _send(self, upload_id: str, number: int, piece: bytes) -> str:
        bucket = self.requests.settings.bucket
        return self.requests.run(
            self.what, lambda client: client._upload_part(bucket, self.key, piece, None, upload_id, number)
        )

    def _complete(self, client: Minio, upload_id: str, parts: list[Part]) -> None:
        result = client._complete_multipart_upload(self.requests.settings.bucket, self.key, upload_id, parts)
        if result.etag is None:
            raise urllib3.exceptions.ProtocolError("the answer to the completion names no object")

    def _abort(self, upload_id: str, error: BaseException) -> None:
        bucket = self.requests.settings.bucket
        try:
            self.requests.run(
                "abort", lambda client: client._abort_multipart_upload(bucket, self.key, upload_id), patience=0
            )
        except ArtifactError as left:
            error.add_note(f"the parts of upload {upload_id} are left behind until this content is stored: {left}")

    def _size(self, client: Minio) -> int | None:
        """Give the object's size, -1 where there is none and ``None`` where this key may not ask."""
        try:
            return client.stat_object(self.requests.settings.bucket, self.key).size
        except S3Error as error:
            kind = judge(error).kind
            if kind is Kind.ABSENT:
                return -1
            if kind is Kind.REFUSED:
                return None
            raise

    def _is_there(self, size: int) -> bool:
        """Tell whether an object of that size is there; a server that doesn't say counts as no."""
        with suppress(*REQUEST_ERRORS):
            return self._size(self.requests.client) == size
        return False

    def _remove_left(self) -> None:
        """Abort what killed processes left of this object; where we may not list uploads, the bucket's rules must."""
        with suppress(ArtifactError):
            self.requests.run(
                "list uploads", lambda client: remove_uploads(client, self.requests, self.key), patience=0
            )


def remove_uploads(client: Minio, requests: S3Requests, prefix: str, older_than: float = 0) -> int:
    """
    Abort unfinished uploads.

    :param prefix: only of keys that begin with this.
    :param older_than: seconds since they were begun.
    :return: how many.
    """
    bucket, removed, marker = requests.settings.bucket, 0, None
    while True:
        listing = client._list_multipart_uploads(bucket, prefix=prefix, key_marker=marker)
        for upload in listing.uploads:
            begun = upload.initiated_time
            old = begun is None or datetime.now(UTC) - begun >= timedelta(seconds=older_than)
            if upload.upload_id is not None and (old or not older_than):
                try:
                    client._abort_multipart_upload(bucket, upload.object_name, upload.upload_id)
                except REQUEST_ERRORS as error:
                    if judge(error).kind is not Kind.ABSENT:
                        raise
                removed += 1
        if not listing.is_truncated or listing.next_key_marker in {None, marker}:
            return removed
        marker = listing.next_key_marker
