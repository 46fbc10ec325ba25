"""A folder in any bucket of an S3 server: files by the names that people know them by."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import BinaryIO, cast

from minio import Minio

from airflow_aiflow.storage.s3_download import ResumingBody
from airflow_aiflow.storage.s3_requests import S3Requests
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.storage.s3_upload import PART_SIZE, Upload
from airflow_aiflow.storage.upload_source import measured

#: Seconds for which a server that can't serve is waited for: what a batch paid for is recorded by then, and a retry
#: of the task writes its results again.
PATIENCE = 60.0


class S3Folder:
    """
    Keep files under a prefix of a bucket.

    :param settings: the server and its keys; their own prefix counts for artifacts alone.
    :param bucket: an existing bucket.
    :param prefix: where in it; empty, or with a slash at its end.
    """

    def __init__(self, settings: S3Settings, bucket: str, prefix: str) -> None:
        self._requests = S3Requests(replace(settings, bucket=bucket, prefix=""), patience=PATIENCE)
        self._bucket, self._prefix = bucket, prefix

    def put(self, name: str, stream: BinaryIO, *, media_type: str, overwrite: bool = False) -> None:
        """Store a file in one request, or in parts that become a file at once."""
        upload = Upload(self._requests, self._prefix + name, f"store {self.uri(name)}", media_type)
        with measured(stream) as source:
            if source.size > PART_SIZE:
                upload.put_parts(source, overwrite=overwrite)
            else:
                upload.put_bytes(b"".join(source.pieces(PART_SIZE)), overwrite=overwrite)

    def open(self, name: str) -> BinaryIO:
        """Open a file; a connection that breaks is opened anew where it broke."""
        body = ResumingBody(self._requests, self._prefix + name, f"read {self.uri(name)}", replaceable=True)
        body.open()
        return cast("BinaryIO", io.BufferedReader(_Reader(body), 1 << 20))

    def names(self) -> list[str]:
        """Name the files right under the prefix."""

        def look(client: Minio) -> list[str]:
            found = client.list_objects(self._bucket, prefix=self._prefix or None)
            return [str(each.object_name)[len(self._prefix) :] for each in found if not each.is_dir]

        return self._requests.run(f"list {self.uri('')}", look)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._requests.run(
            f"remove {self.uri(name)}", lambda client: client.remove_object(self._bucket, self._prefix + name)
        )

    def uri(self, name: str) -> str:
        """Give the address of a file."""
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def close(self) -> None:
        """Give the connections back."""
        self._requests.close()


class _Reader(io.RawIOBase):
    """Read a body in order."""

    def __init__(self, body: ResumingBody) -> None:
        super().__init__()
        self._body, self._at = body, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        piece = self._body.read_at(self._at, len(buffer))
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()
