"""Bodies that end early are errors of the connection, also where the HTTP library does not look."""

from __future__ import annotations

import io
from typing import cast

import pytest
import urllib3
from minio import Minio

from airflow_aiflow.exceptions import ArtifactUnavailableError, ItemFileError
from airflow_aiflow.storage.s3_download import ResumingBody, fetch
from airflow_aiflow.storage.s3_requests import S3Requests
from airflow_aiflow.storage.s3_settings import S3Settings

SETTINGS = S3Settings(endpoint="s3:9000", bucket="aiflow", access_key="KEY", secret_key="SECRET")


class Careless:
    """Give responses as an older HTTP library does: it does not compare what came with what was announced."""

    def get_object(self, bucket: str, key: str, offset: int = 0) -> urllib3.HTTPResponse:
        return urllib3.HTTPResponse(
            io.BytesIO(b"short"),
            {"content-length": str(10 - offset), "content-range": f"bytes {offset}-9/10"},
            206 if offset else 200,
            preload_content=False,
            enforce_content_length=False,
        )


CARELESS = cast("Minio", Careless())


def test_a_short_value_is_an_error() -> None:
    with pytest.raises(urllib3.exceptions.ProtocolError, match="5 bytes came where 10 were announced"):
        fetch(CARELESS, "aiflow", "key")


def test_a_short_file_is_read_on() -> None:
    requests = S3Requests(SETTINGS, patience=5, sleep=lambda _: None)
    requests.client = CARELESS
    body = ResumingBody(requests, "key", "read it")
    assert [body.read_at(0, 100), body.read_at(5, 100)] == [b"short", b"short"]
    body.close()


def test_a_short_file_is_never_its_end() -> None:
    requests = S3Requests(SETTINGS, patience=0)
    requests.client = CARELESS
    body = ResumingBody(requests, "key", "read it")
    assert body.read_at(0, 100) == b"short"
    with pytest.raises(ArtifactUnavailableError, match="ended at byte 5 of 10"):
        body.read_at(5, 100)


class Replaced(Careless):
    """Give another object's bytes from the second request on."""

    tags = ('"one"', '"two"')

    def get_object(self, bucket: str, key: str, offset: int = 0) -> urllib3.HTTPResponse:
        response = super().get_object(bucket, key, offset)
        response.headers["etag"] = self.tags[bool(offset)]
        return response


def test_a_file_that_is_replaced_while_it_is_read_is_never_a_part_of_each() -> None:
    requests = S3Requests(SETTINGS, patience=5, sleep=lambda _: None)
    requests.client = cast("Minio", Replaced())
    body = ResumingBody(requests, "key", "read s3://aiflow/key", replaceable=True)
    assert body.read_at(0, 100) == b"short"
    with pytest.raises(ItemFileError, match="could not read s3://aiflow/key whole: it was replaced"):
        body.read_at(5, 100)


def test_an_artifact_is_told_by_its_hash_and_not_by_its_tag() -> None:
    requests = S3Requests(SETTINGS, patience=5, sleep=lambda _: None)
    requests.client = cast("Minio", Replaced())
    body = ResumingBody(requests, "key", "read it")
    assert [body.read_at(0, 100), body.read_at(5, 100)] == [b"short", b"short"]
    body.close()
