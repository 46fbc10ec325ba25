"""
Where clients put what they upload: beside the artifacts in the bucket, and never read as one of them.

Not covered: S3 can't limit what is put to a signed link beyond its own 5 GiB; what is larger than announced is refused
when it is to be used, and removed once the link has expired.
"""

from __future__ import annotations

import io
from datetime import timedelta
from typing import BinaryIO
from uuid import UUID

from minio import Minio

from airflow_aiflow.storage.s3_download import InOrder, ResumingBody
from airflow_aiflow.storage.s3_requests import S3Requests, make_client


class S3Staging:
    """
    Hold uploads in a bucket. Safe for use from several threads.

    :param requests: carries requests out.
    """

    def __init__(self, requests: S3Requests) -> None:
        self._requests = requests

    def link(self, upload_id: UUID, *, expires: float) -> str:
        """Give an address to which the bytes are put, without a log-in."""
        settings, key = self._requests.settings, self._key(upload_id)

        def sign(client: Minio) -> str:
            public = make_client(settings, self._requests.http, public=True) if settings.public_url else client
            return public.presigned_put_object(settings.bucket, key, timedelta(seconds=int(expires)))

        return self._requests.run(f"sign a link for upload {upload_id}", sign)

    def open(self, upload_id: UUID) -> BinaryIO:
        """Open what was put."""
        body = ResumingBody(self._requests, self._key(upload_id), f"read upload {upload_id}")
        body.open()
        return io.BufferedReader(InOrder(body))

    def remove(self, upload_id: UUID) -> None:
        """Remove it, where it is there."""
        bucket, key = self._requests.settings.bucket, self._key(upload_id)
        self._requests.run(f"remove upload {upload_id}", lambda client: client.remove_object(bucket, key))

    def _key(self, upload_id: UUID) -> str:
        # Ids begin with the time: the last digits spread them.
        settings = self._requests.settings
        return "/".join(part for part in (settings.prefix, "upload", upload_id.hex[-2:], upload_id.hex) if part)
