"""Look whether an object is there, and what its bytes hash to, in any bucket of an S3 server."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from minio.error import S3Error

from airflow_aiflow.storage.s3_requests import S3Requests

if TYPE_CHECKING:
    from minio import Minio

    from airflow_aiflow.storage.s3_settings import S3Settings

#: Bytes that are read at a time.
CHUNK = 1024 * 1024


def object_hash(settings: S3Settings, bucket: str, key: str, *, read: bool, patience: float) -> str | None:
    """
    Hash an object.

    :param settings: how to reach the server.
    :param bucket: any bucket there; the settings' prefix counts for artifacts alone.
    :param key: the object's name.
    :param read: whether its bytes matter; else it is only looked for.
    :param patience: seconds for which a fault that may pass is waited out.
    :return: SHA-256 in hexadecimal digits, empty where it was not read; ``None``: there is no such object.
    :raises ArtifactError: if the server could not be asked, or the bucket is not there.
    """

    def look(client: Minio) -> str | None:
        try:
            # Never by HEAD, whose answer has no body and can't tell a missing object from a missing bucket.
            answer = client.get_object(bucket, key)
        except S3Error as error:
            if error.code == "NoSuchKey":
                return None
            raise
        digest = hashlib.sha256()
        try:
            for chunk in answer.stream(CHUNK) if read else ():
                digest.update(chunk)
        finally:
            answer.close()
            answer.release_conn()
        return digest.hexdigest() if read else ""

    requests = S3Requests(settings, patience=patience)
    try:
        return requests.run(f"look for an object in bucket '{bucket}'", look)
    finally:
        requests.close()
