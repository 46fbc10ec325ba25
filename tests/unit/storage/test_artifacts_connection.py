"""Connections of both types, as forms and as URIs give them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.storage.artifacts_connection import PlainConnection, artifact_store, settings_from_connection
from airflow_aiflow.storage.s3_settings import S3Settings

KEYS = {"login": "KEY", "password": "SECRET"}


def settings(conn_type: str = "minio", extra: dict[str, Any] | None = None, **fields: Any) -> S3Settings:
    return settings_from_connection(PlainConnection("aiflow_artifacts", conn_type, extra_dejson=extra or {}, **fields))


@pytest.mark.parametrize(
    ("fields", "extra", "endpoint", "secure"),
    [
        ({"host": "127.0.0.1", "port": 9000}, {}, "127.0.0.1:9000", True),
        ({"host": "127.0.0.1", "port": 9000}, {"secure": False}, "127.0.0.1:9000", False),
        ({"host": "127.0.0.1", "port": 9000}, {"secure": "false"}, "127.0.0.1:9000", False),
        ({"host": "http://127.0.0.1", "port": 9000}, {}, "127.0.0.1:9000", False),
        ({"host": "http://127.0.0.1:9000"}, {}, "127.0.0.1:9000", False),
        ({"host": "https://s3.example.com/"}, {"secure": True}, "s3.example.com", True),
        ({"host": "s3.example.com:8443"}, {"secure": None}, "s3.example.com:8443", True),
        ({"host": "[::1]", "port": 9000}, {}, "[::1]:9000", True),
        ({"host": "ignored", "port": 1}, {"endpoint_url": "http://10.0.0.1:8333"}, "10.0.0.1:8333", False),
    ],
)
def test_the_server(fields: dict[str, Any], extra: dict[str, Any], endpoint: str, secure: bool) -> None:
    found = settings(schema="bucket", extra=extra, **KEYS, **fields)
    assert (found.endpoint, found.secure) == (endpoint, secure)
    assert (found.access_key, found.secret_key, found.bucket) == ("KEY", "SECRET", "bucket")


def test_every_field() -> None:
    extra = {
        "bucket": "from-extra",
        "prefix": "/team/a/",
        "region": "eu-central-1",
        "session_token": "TOKEN",
        "verify": "/etc/ca.pem",
        "public_url": "https://files.example.com",
    }
    found = settings(host="s3", schema="ignored", extra=extra, **KEYS)
    assert found == S3Settings(
        endpoint="s3",
        bucket="from-extra",
        access_key="KEY",
        secret_key="SECRET",
        session_token="TOKEN",
        prefix="team/a",
        region="eu-central-1",
        verify="/etc/ca.pem",
        public_url="https://files.example.com",
        origin="connection 'aiflow_artifacts'",
    )


@pytest.mark.parametrize(("given", "meant"), [(False, False), ("false", False), (True, True), ("", True), (None, True)])
def test_verify(given: object, meant: bool) -> None:
    assert settings(host="s3", schema="bucket", extra={"verify": given}, **KEYS).verify is meant


def test_an_aws_connection_as_people_have_it() -> None:
    found = settings(
        "aws",
        {
            "region_name": "eu-west-1",
            "aws_session_token": "TOKEN",
            "service_config": {"s3": {"bucket_name": "theirs", "endpoint_url": "https://s3.eu-west-1.amazonaws.com"}},
        },
        **KEYS,
    )
    assert (found.endpoint, found.bucket, found.region) == ("s3.eu-west-1.amazonaws.com", "theirs", "eu-west-1")
    assert (found.access_key, found.session_token, found.secure) == ("KEY", "TOKEN", True)


def test_an_aws_connection_without_keys_takes_the_chain() -> None:
    found = settings("aws", {"bucket": "theirs", "profile_name": "team"})
    assert (found.endpoint, found.access_key, found.profile) == ("s3.amazonaws.com", None, "team")
    assert settings("aws", {"bucket": "b-b", "aws_access_key_id": "A", "aws_secret_access_key": "B"}).access_key == "A"


GOOD: dict[str, Any] = {"host": "s3", "schema": "bucket", **KEYS}


@pytest.mark.parametrize(
    ("conn_type", "fields", "extra", "field"),
    [
        ("http", GOOD, {}, "conn_type"),
        ("minio", {**GOOD, "host": None}, {}, "host"),
        ("minio", {**GOOD, "host": "ftp://s3"}, {}, "host"),
        ("minio", {**GOOD, "host": "http://s3/path"}, {}, "host"),
        ("minio", {**GOOD, "host": "http://s3:port"}, {}, "host"),
        ("minio", {**GOOD, "host": "http://"}, {}, "host"),
        ("minio", GOOD, {"endpoint_url": "https://s3/path"}, "extra.endpoint_url"),
        ("minio", {**GOOD, "schema": ""}, {}, "schema"),
        ("minio", {**GOOD, "login": None}, {}, "login"),
        ("minio", {**GOOD, "password": ""}, {}, "password"),
        ("aws", {**GOOD, "password": None}, {}, "password"),
        ("minio", GOOD, {"secure": "maybe"}, "extra.secure"),
        ("minio", GOOD, {"secure": 1.5}, "extra.secure"),
        ("minio", {**GOOD, "host": "http://s3"}, {"secure": True}, "extra.secure"),
        ("minio", GOOD, {"verify": "perhaps"}, "extra.verify"),
        ("minio", GOOD, {"prefix": 5}, "extra.prefix"),
        ("aws", GOOD, {"role_arn": "arn:aws:iam::1:role/x"}, "extra.role_arn"),
    ],
)
def test_a_wrong_field_is_named(conn_type: str, fields: dict[str, Any], extra: dict[str, Any], field: str) -> None:
    with pytest.raises(AiflowConfigError, match=f"^connection 'aiflow_artifacts': field '{re.escape(field)}' ") as bad:
        settings(conn_type, extra, **fields)
    assert "SECRET" not in str(bad.value)


@pytest.mark.parametrize(
    ("fields", "extra", "what"),
    [
        ({"schema": "A_B"}, {}, "bucket 'A_B'"),
        ({"schema": "ab"}, {}, "bucket 'ab'"),
        ({"schema": "a..b"}, {}, "bucket 'a..b'"),
        ({}, {"prefix": "a/../b"}, "prefix 'a/../b'"),
        ({}, {"prefix": "a//b"}, "prefix 'a//b'"),
        ({}, {"prefix": "a b"}, "prefix 'a b'"),
        ({"host": "bad host"}, {}, "endpoint 'bad host'"),
        ({}, {"public_url": "files.example.com"}, "public_url 'files.example.com'"),
        ({}, {"public_url": "https://files.example.com/x"}, "public_url 'https://files.example.com/x'"),
    ],
)
def test_a_value_that_can_not_be_used_is_shown(fields: dict[str, Any], extra: dict[str, Any], what: str) -> None:
    with pytest.raises(AiflowConfigError, match=re.escape(what)):
        settings(extra=extra, **{**GOOD, **fields})


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(AiflowConfigError) as bad:
        settings(**{**GOOD, "host": "http://user:hunter2@s3"})
    assert "hunter2" not in str(bad.value)


def test_nothing_shows_the_keys() -> None:
    connection = PlainConnection("c", "minio", extra_dejson={"session_token": "TOKEN"}, **GOOD)
    for shown in (repr(connection), repr(settings_from_connection(connection))):
        assert not {word for word in ("KEY", "SECRET", "TOKEN") if word in shown}


def test_airflow_s_own_connection_will_do() -> None:
    """Both ways in which people write one: as JSON and as a URI."""
    from airflow.sdk import Connection

    plain = Connection(
        conn_id="aiflow_artifacts",
        conn_type="minio",
        host="http://127.0.0.1",
        port=8333,
        login="KEY",
        password="SECRET",
        extra='{"bucket": "aiflow"}',
    )
    by_uri = Connection.from_uri("minio://KEY:SECRET@127.0.0.1:8333/?bucket=aiflow&secure=false", "aiflow_artifacts")
    found = settings_from_connection(plain)
    assert found == settings_from_connection(by_uri)
    assert (found.endpoint, found.secure, found.bucket) == ("127.0.0.1:8333", False, "aiflow")
    store = artifact_store(plain, renew=lambda: by_uri, patience=1.0)
    assert store.settings == found
    store.close()
