"""
The artifact store on an S3 server, through the ``minio`` SDK.

Objects are addressed by the SHA-256 of their bytes, so that a repeated or a rival put writes the same object: dedup and
correctness rest on that and on the ledger's row, never on conditional puts, on the server's checksums or on ETags. What
is read is verified by us. Names that people give never enter a key.

Not covered: a put that finds its object there does not renew the object's age; whatever deletes by age must know which
objects the ledger names.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from datetime import timedelta
from typing import BinaryIO, Final

from minio import Minio
from minio.error import S3Error

from airflow_aiflow.durable.artifact import checked_media_type
from airflow_aiflow.exceptions import ArtifactDamagedError, ArtifactUnavailableError, FlowOptionError
from airflow_aiflow.storage.content_disposition import content_disposition
from airflow_aiflow.storage.frame_stream import FrameBody
from airflow_aiflow.storage.s3_download import InOrder, ResumingBody, fetch
from airflow_aiflow.storage.s3_faults import Kind, judge, missing_bucket
from airflow_aiflow.storage.s3_part import ObjectPart
from airflow_aiflow.storage.s3_probe import ProbeReport, probe
from airflow_aiflow.storage.s3_requests import DEFAULT_PATIENCE, S3Requests, make_client
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.storage.s3_staging import S3Staging
from airflow_aiflow.storage.s3_upload import PART_SIZE, Upload, remove_uploads
from airflow_aiflow.storage.upload_source import measured
from airflow_aiflow.storage.value_frame import FrameError, pack, unpack
from airflow_aiflow.storage.verified_stream import CHUNK, verified

#: What S3 allows for a signed link.
LONGEST_LINK: Final = timedelta(days=7)


class S3ArtifactStore:
    """
    Keep artifacts in a bucket. Safe for use from several threads.

    :param settings: the bucket and its keys.
    :param patience: seconds for which each request is retried while the server can't be reached or is overloaded; an
        unreachable server fails within this plus one connect time-out.
    :param renew: gives the settings anew after the server refused the credentials; ``None``: they are never rotated.
    :param temp_dir: where streams that can't seek are spooled; ``None``: the system's temporary folder.
    :param sleep: waits between tries.
    """

    def __init__(
        self,
        settings: S3Settings,
        *,
        patience: float = DEFAULT_PATIENCE,
        renew: Callable[[], S3Settings] | None = None,
        temp_dir: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._requests = S3Requests(settings, patience=patience, renew=renew, sleep=sleep)
        self._temp_dir = temp_dir
        self._bucket_seen = False
        #: Addresses that were found damaged: what is there is overwritten, also where its size is right.
        self._damaged: set[str] = set()

    @property
    def settings(self) -> S3Settings:
        """Give the settings in use."""
        return self._requests.settings

    @property
    def staging(self) -> S3Staging:
        """Give the place for uploads that are not checked yet, over the same connections."""
        return S3Staging(self._requests)

    def put_value(self, data: bytes) -> bytes:
        """
        Store an encoded value, compressed.

        :return: the SHA-256 (32 bytes) of the plain bytes.
        """
        sha256, frame = pack(data)
        self._put(self._value_key(sha256), frame, f"store value {sha256.hex()}")
        return sha256

    def get_value(self, sha256: bytes) -> bytes:
        """Read an encoded value back and verify it."""
        key = self._value_key(sha256)
        name = self._name("value", key)
        try:
            return unpack(sha256, self._fetch(key, name))
        except FrameError:
            # Read again before judging: bytes can also be damaged on their way.
            try:
                return unpack(sha256, self._fetch(key, name))
            except FrameError as error:
                raise self._damage("value", key, str(error)) from error

    def put_file(self, stream: BinaryIO, *, media_type: str) -> tuple[bytes, int]:
        """
        Store bytes as given; a stream is stored whole, from its beginning, where it can seek.

        :param media_type: the content type, in ASCII.
        :return: (SHA-256, size in bytes).
        """
        media_type = checked_media_type(media_type)
        with measured(stream, self._temp_dir) as source:
            key, what = self._file_key(source.sha256), f"store file {source.sha256.hex()}"
            if source.size > PART_SIZE:
                self._require_bucket()
                Upload(self._requests, key, what, media_type).put_parts(source, overwrite=key in self._damaged)
                self._damaged.discard(key)
            else:
                self._put(key, b"".join(source.pieces(PART_SIZE)), what, media_type)
            return source.sha256, source.size

    def open_file(self, sha256: bytes) -> BinaryIO:
        """Open a stored file for reading once, in order; the hash is verified before its last bytes are given out."""
        key = self._file_key(sha256)
        name = self._name("file", key)
        body = ResumingBody(self._requests, key, f"read {name}")
        body.open()
        return verified(sha256, body, lambda found: self._damage("file", key, found))

    def open_value(self, sha256: bytes) -> BinaryIO:
        """Open an encoded value for reading once, in order; its last bytes come only after the whole was verified."""
        key = self._value_key(sha256)
        body = ResumingBody(self._requests, key, f"read {self._name('value', key)}")
        body.open()

        def damaged(found: str) -> ArtifactDamagedError:
            return self._damage("value", key, found)

        return verified(sha256, FrameBody(InOrder(body), damaged), damaged)

    def open_part(self, sha256: bytes, first: int, size: int, *, total: int) -> BinaryIO:
        """Open a part of a stored file, which can't be verified; the size of the whole must be ``total``."""
        key = self._file_key(sha256)

        def damaged(found: str) -> ArtifactDamagedError:
            return self._damage("file", key, found)

        what = f"read {self._name('file', key)}"
        part = ObjectPart(self._requests, key, what, first=first, size=size, total=total, damaged=damaged)
        part.open()
        return io.BufferedReader(part, CHUNK)

    def uri(self, sha256: bytes) -> str:
        """Give the ``s3://`` address of a stored file."""
        return self._uri(self._file_key(sha256))

    def url(self, sha256: bytes, *, expires: float, name: str | None = None, media_type: str | None = None) -> str:
        """
        Give a link that works for a while without a log-in.

        :param expires: seconds, 1 to 604,800.
        :param name: what a browser saves it as.
        :param media_type: what the server is to call it; ``None``: as it was stored.
        """
        if not 1 <= expires <= LONGEST_LINK.total_seconds():
            raise FlowOptionError(
                f"a link to an artifact lives for 1 second to 7 days, got expires={expires!r} seconds"
            )
        said: dict[str, str | list[str] | tuple[str]] = {
            "response-content-disposition": content_disposition(name, sha256.hex(), media_type)
        }
        if media_type is not None:
            said["response-content-type"] = checked_media_type(media_type)
        key, lifetime = self._file_key(sha256), timedelta(seconds=int(expires))
        bucket = self.settings.bucket

        def sign(client: Minio) -> str:
            public = (
                make_client(self.settings, self._requests.http, public=True) if self.settings.public_url else client
            )
            return public.presigned_get_object(bucket, key, lifetime, dict(said))

        return self._requests.run(f"sign a link to {self._uri(key)}", sign)

    def ensure_bucket(self) -> bool:
        """
        Make the bucket where it is missing.

        :return: whether it was made now.
        """
        bucket = self.settings.bucket

        def ensure(client: Minio) -> bool:
            if client.bucket_exists(bucket):
                return False
            client.make_bucket(bucket)
            return True

        return self._requests.run(f"make bucket {bucket!r}", ensure)

    def remove_unfinished(self, *, older_than: float) -> int:
        """
        Abort the uploads that killed processes left.

        :param older_than: seconds; must be longer than the longest live upload takes.
        :return: how many.
        """
        # Only below our own keys: others may use the bucket, or a prefix that begins like ours.
        prefixes = [self.settings.key(kind, "").rstrip("/") + "/" for kind in ("value", "file")]
        return self._requests.run(
            "remove unfinished uploads",
            lambda client: sum(remove_uploads(client, self._requests, prefix, older_than) for prefix in prefixes),
        )

    def probe(self) -> ProbeReport:
        """Try the server out, for ``aiflow doctor``. What it finds is told to people; nothing rests on it."""
        self._require_bucket()
        return probe(self._requests)

    def close(self) -> None:
        """Give the connections back."""
        self._requests.close()

    def _put(self, key: str, data: bytes, what: str, media_type: str = "application/zstd") -> None:
        self._require_bucket()
        Upload(self._requests, key, what, media_type).put_bytes(data, overwrite=key in self._damaged)
        self._damaged.discard(key)

    def _fetch(self, key: str, name: str) -> bytes:
        return self._requests.run(f"read {name}", lambda client: fetch(client, self.settings.bucket, key))

    def _damage(self, kind: str, key: str, found: str) -> ArtifactDamagedError:
        self._damaged.add(key)
        return ArtifactDamagedError(
            f"{self._name(kind, key)} is damaged: it holds {found}. Remove that object and clear what made it, with a "
            "fresh start: it is then made and stored again"
        )

    def _require_bucket(self) -> None:
        """Look once whether the bucket is there: some servers make a missing one at the first put, misspelt or not."""
        if self._bucket_seen:
            return
        bucket = self.settings.bucket

        def look(client: Minio) -> bool:
            try:
                return client.bucket_exists(bucket)
            except S3Error as error:
                # An answer without a body does not say what is refused, and a key may be allowed to write and not to
                # look: the put itself will tell.
                if judge(error).kind is Kind.REFUSED:
                    return True
                raise

        if not self._requests.run(f"use bucket {bucket!r}", look):
            raise ArtifactUnavailableError(f"could not store: {missing_bucket(self.settings)}")
        self._bucket_seen = True

    def _value_key(self, sha256: bytes) -> str:
        return self.settings.key("value", f"{sha256.hex()}.zst")

    def _file_key(self, sha256: bytes) -> str:
        return self.settings.key("file", sha256.hex())

    def _uri(self, key: str) -> str:
        return f"s3://{self.settings.bucket}/{key}"

    def _name(self, kind: str, key: str) -> str:
        return f"{kind} {self._uri(key)}"
