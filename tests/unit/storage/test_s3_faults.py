"""What an answer of a server, or its silence, means."""

from __future__ import annotations

import ssl
from xml.etree.ElementTree import ParseError

import pytest
import urllib3
from minio.error import InvalidResponseError, S3Error, ServerError

from airflow_aiflow.exceptions import ArtifactError, ArtifactMissingError, ArtifactUnavailableError
from airflow_aiflow.storage.s3_faults import Kind, explain, judge
from airflow_aiflow.storage.s3_requests import translate
from airflow_aiflow.storage.s3_settings import S3Settings

SETTINGS = S3Settings(endpoint="s3:9000", bucket="aiflow", access_key="KEY", secret_key="SECRET", secure=False)


def s3_error(code: str, status: int) -> S3Error:
    return S3Error(urllib3.HTTPResponse(status=status), code, "why", "/aiflow/key", "1", "2")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (s3_error("InternalError", 500), Kind.PASSING),
        (s3_error("SlowDown", 503), Kind.PASSING),
        (s3_error("SomethingNew", 503), Kind.PASSING),
        (s3_error("SomethingNew", 429), Kind.PASSING),
        (s3_error("RequestTimeout", 400), Kind.DOUBTFUL),
        (s3_error("BadDigest", 400), Kind.DOUBTFUL),
        (s3_error("SomethingNew", 400), Kind.DOUBTFUL),
        (s3_error("SignatureDoesNotMatch", 403), Kind.REFUSED),
        (s3_error("ExpiredToken", 400), Kind.REFUSED),
        (s3_error("SomethingNew", 403), Kind.REFUSED),
        (s3_error("NoSuchKey", 404), Kind.ABSENT),
        (s3_error("NoSuchUpload", 404), Kind.ABSENT),
        (s3_error("NoSuchBucket", 404), Kind.FINAL),
        (s3_error("RequestTimeTooSkewed", 403), Kind.FINAL),
        (s3_error("NotImplemented", 501), Kind.FINAL),
        (s3_error("EntityTooLarge", 400), Kind.TOO_LARGE),
        (ServerError("server failed", 502), Kind.PASSING),
        (ServerError("server failed", 304), Kind.FINAL),
        (InvalidResponseError(503, "text/html", "<html>"), Kind.PASSING),
        (InvalidResponseError(404, "text/html", "<html>"), Kind.FINAL),
        (InvalidResponseError(413, "text/html", "<html>"), Kind.TOO_LARGE),
        (urllib3.exceptions.ProtocolError("Connection aborted."), Kind.PASSING),
        (urllib3.exceptions.ConnectTimeoutError("timed out"), Kind.PASSING),
        (ConnectionResetError(104, "reset"), Kind.PASSING),
        (ParseError("no element found"), Kind.PASSING),
        (ValueError("All providers fail to fetch credentials"), Kind.FINAL),
    ],
)
def test_what_to_do(error: Exception, kind: Kind) -> None:
    assert judge(error).kind is kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("WRONG_VERSION_NUMBER", Kind.FINAL), ("UNEXPECTED_EOF_WHILE_READING", Kind.PASSING)],
)
def test_tls(reason: str, kind: Kind) -> None:
    inner = ssl.SSLError(1, reason)
    inner.reason = reason
    assert judge(urllib3.exceptions.SSLError(inner)).kind is kind
    refused = ssl.SSLCertVerificationError(1, "self-signed certificate")
    assert judge(urllib3.exceptions.SSLError(refused)).kind is Kind.FINAL


def test_only_an_object_is_ever_missing() -> None:
    assert isinstance(translate(s3_error("NoSuchKey", 404), "read x", SETTINGS), ArtifactMissingError)
    for error in (s3_error("NoSuchBucket", 404), InvalidResponseError(404, "text/html", ""), s3_error("Odd", 404)):
        assert isinstance(translate(error, "read x", SETTINGS), ArtifactUnavailableError)


def test_a_size_error_is_no_reason_to_try_again() -> None:
    error = translate(s3_error("EntityTooLarge", 400), "store x", SETTINGS)
    assert type(error) is ArtifactError
    assert not error.retryable
    assert str(error).startswith("could not store x: ")


def test_a_server_s_page_is_cut_short_and_on_one_line() -> None:
    error = InvalidResponseError(502, "text/html", "<html>\n" + "<br>\n" * 5000)
    text = explain(judge(error), error, SETTINGS)
    assert len(text) < 500
    assert "\n" not in text
