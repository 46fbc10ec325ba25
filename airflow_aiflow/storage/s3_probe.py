"""
Try out what an S3 server does beyond storing, for ``aiflow doctor``.

Nothing here is relied on: a server that ignores a condition or a checksum is as safe for us as one that minds them,
because objects are addressed by their content, verified on reading and named by the ledger. It is worth a line to know.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Literal

from minio import Minio
from urllib3.response import BaseHTTPResponse

from airflow_aiflow.exceptions import ArtifactError
from airflow_aiflow.storage.s3_download import fetch
from airflow_aiflow.storage.s3_requests import S3Requests

Behaviour = Literal["minded", "ignored", "refused"]


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """
    Hold what a server did.

    :param server: how it calls itself.
    :param conditional_put: a second put with ``If-None-Match: *``: not carried out, carried out, or the header refused.
    :param checksum: a put whose ``Content-MD5`` is wrong: not stored, stored, or the header refused.
    :param lists_uploads: whether this key may list unfinished uploads; else set a bucket rule that aborts them.
    :param deletes: whether this key may delete objects.
    :param clock_skew: seconds that this machine's clock is ahead of the server's; ``None``: it did not say. From 900
        on, requests are refused.
    """

    server: str
    conditional_put: Behaviour
    checksum: Behaviour
    lists_uploads: bool
    deletes: bool
    clock_skew: float | None


def probe(requests: S3Requests) -> ProbeReport:
    """
    Put, read and remove a small object and see what happens.

    :raises ArtifactError: plain storing and reading does not work.
    """
    settings = requests.settings
    name = uuid.uuid4().hex
    key, other = settings.key("probe", name), settings.key("probe", f"{name}-checksum")
    first, second = f"first {name}".encode(), f"other {name}".encode()
    created = requests.run("store a probe", lambda client: _put(requests, client, key, first))
    if created.status >= 300:
        # Links may be switched off for this key: the SDK's own way is the one that artifacts take.
        requests.run("store a probe", lambda client: client._put_object(settings.bucket, key, first))
    again = requests.run("try a condition", lambda client: _put(requests, client, key, second, {"If-None-Match": "*"}))
    now = requests.run("read a probe", lambda client: fetch(client, settings.bucket, key))
    if now not in {first, second}:
        raise ArtifactError(
            f"{settings.address} gives back other bytes than were stored in s3://{settings.bucket}/{key}"
        )
    wrong = base64.b64encode(hashlib.md5(b"something else", usedforsecurity=False).digest()).decode()
    checked = requests.run(
        "try a checksum", lambda client: _put(requests, client, other, first, {"Content-MD5": wrong})
    )
    deleted = [_delete(requests, each) for each in (key, other)]
    return ProbeReport(
        server=created.headers.get("server", "unknown"),
        conditional_put="ignored" if now == second else "minded" if again.status in {409, 412} else "refused",
        checksum="ignored" if checked.status < 300 else "minded" if checked.status == 400 else "refused",
        lists_uploads=_lists_uploads(requests),
        deletes=all(deleted),
        clock_skew=_skew(created),
    )


def _put(
    requests: S3Requests, client: Minio, key: str, data: bytes, headers: dict[str, str] | None = None
) -> BaseHTTPResponse:
    """Put by a signed link: the SDK has no way to send a header of one's own."""
    url = client.get_presigned_url("PUT", requests.settings.bucket, key, timedelta(minutes=1))
    return requests.http.request("PUT", url, body=data, headers=headers or {})


def _delete(requests: S3Requests, key: str) -> bool:
    try:
        requests.run("remove a probe", lambda client: client.remove_object(requests.settings.bucket, key))
    except ArtifactError:
        return False
    return True


def _lists_uploads(requests: S3Requests) -> bool:
    def listing(client: Minio) -> None:
        client._list_multipart_uploads(requests.settings.bucket, prefix=requests.settings.prefix)

    try:
        requests.run("list uploads", listing)
    except ArtifactError:
        return False
    return True


def _skew(response: BaseHTTPResponse) -> float | None:
    with suppress(ValueError):
        if date := response.headers.get("date"):
            return (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    return None
