"""
Read the artifact store's settings from a connection's plain fields.

Knows no Airflow: any object with an Airflow connection's attributes will do. Two connection types: ``minio`` (ours, for
any S3 server) and ``aws`` (Airflow's own, so that people keep the one they have). Texts "true" and "false" count as
booleans, because a connection given as a URI holds nothing but texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.storage.s3_settings import S3Settings

if TYPE_CHECKING:
    from airflow_aiflow.storage.s3 import S3ArtifactStore

CONNECTION_TYPES: Final = ("minio", "aws")

#: Fields of Airflow's ``aws`` type that would change who we are, and that the SDK has no way to follow.
_UNSUPPORTED: Final = ("role_arn", "assume_role_method", "assume_role_with_web_identity", "assume_role_with_saml")


class ConnectionFields(Protocol):
    """What is read of a connection; Airflow's ``Connection`` has it all."""

    @property
    def conn_id(self) -> str:
        """Give the connection's name."""

    @property
    def conn_type(self) -> str | None:
        """Give its type."""

    @property
    def host(self) -> str | None:
        """Give the server, with or without a scheme."""

    @property
    def schema(self) -> str | None:
        """Give the bucket."""

    @property
    def login(self) -> str | None:
        """Give the access key."""

    @property
    def password(self) -> str | None:
        """Give the secret key."""

    @property
    def port(self) -> int | None:
        """Give the port."""

    @property
    def extra_dejson(self) -> Mapping[str, Any]:
        """Give the extra fields."""


@dataclass(frozen=True, slots=True)
class PlainConnection:
    """Hold a connection's fields where there is no Airflow."""

    conn_id: str
    conn_type: str
    host: str | None = None
    schema: str | None = None
    login: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    port: int | None = None
    extra_dejson: Mapping[str, Any] = field(default_factory=dict, repr=False)


def artifact_store(
    connection: ConnectionFields,
    *,
    renew: Callable[[], ConnectionFields] | None = None,
    patience: float | None = None,
) -> S3ArtifactStore:
    """
    Make the store that a connection describes. Speaks to nobody yet.

    :param connection: of type ``minio`` or ``aws``.
    :param renew: looks the connection up again after the server has refused its credentials.
    :param patience: seconds for which a server that can't serve is waited for; ``None``: the store's own.
    :raises AiflowConfigError: a field is missing or wrong; the message names the connection and the field.
    """
    from airflow_aiflow.storage.s3 import S3ArtifactStore
    from airflow_aiflow.storage.s3_requests import DEFAULT_PATIENCE

    return S3ArtifactStore(
        settings_from_connection(connection),
        patience=DEFAULT_PATIENCE if patience is None else patience,
        renew=None if renew is None else lambda: settings_from_connection(renew()),
    )


def settings_from_connection(connection: ConnectionFields) -> S3Settings:
    """
    Read settings from a connection.

    :raises AiflowConfigError: a field is missing or wrong; the message names the connection and the field.
    """
    fields = _Fields(connection)
    if connection.conn_type not in CONNECTION_TYPES:
        raise fields.wrong(
            "conn_type", f"is {connection.conn_type!r}: use 'minio' for any S3 server, or 'aws' (Airflow's own type)"
        )
    aws = connection.conn_type == "aws"
    for name in _UNSUPPORTED if aws else ():
        if fields.text(name):
            raise fields.wrong(
                f"extra.{name}", "can't be followed: let the machine or the pod have the role, or give an access key"
            )
    endpoint, secure = _endpoint(fields, aws)
    access_key, secret_key = _keys(fields, aws)
    bucket = fields.text("bucket") or fields.service("bucket_name") or fields.plain("schema")
    if bucket is None:
        raise fields.wrong("schema", "is empty: name the bucket there, or in extra.bucket")
    return S3Settings(
        endpoint=endpoint,
        bucket=bucket,
        access_key=access_key,
        secret_key=secret_key,
        session_token=fields.text("aws_session_token") or fields.text("session_token"),
        prefix=(fields.text("prefix") or "").strip("/"),
        secure=secure,
        region=fields.text("region_name") or fields.text("region"),
        verify=fields.verify(),
        public_url=fields.text("public_url"),
        profile=fields.text("profile_name") if aws else None,
        origin=fields.origin,
    )


class _Fields:
    """Read one connection's fields, with errors that name them."""

    def __init__(self, connection: ConnectionFields) -> None:
        self._connection = connection
        self._extra = connection.extra_dejson or {}
        self.origin = f"connection {connection.conn_id!r}"

    def wrong(self, name: str, what: str) -> AiflowConfigError:
        return AiflowConfigError(f"{self.origin}: field {name!r} {what}")

    def plain(self, name: str) -> str | None:
        value = getattr(self._connection, name)
        return str(value) if value not in {None, ""} else None

    def text(self, name: str) -> str | None:
        value = self._extra.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.wrong(f"extra.{name}", f"must be a text, got {type(value).__name__}")
        return value

    def flag(self, name: str) -> bool | None:
        value = self._extra.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in {"true", "false", "1", "0", "yes", "no"}:
            return value.lower() in {"true", "1", "yes"}
        raise self.wrong(f"extra.{name}", f"must be true or false, got {value!r}")

    def verify(self) -> bool | str:
        """Read ``verify``: a boolean, or the file of the authorities to trust."""
        value = self._extra.get("verify")
        if isinstance(value, str) and value.startswith(("/", "./", "~")):
            return value
        flag = self.flag("verify")
        return True if flag is None else flag

    def service(self, name: str) -> str | None:
        """Read Airflow's ``service_config`` of S3."""
        config = self._extra.get("service_config")
        s3 = config.get("s3") if isinstance(config, Mapping) else None
        value = s3.get(name) if isinstance(s3, Mapping) else None
        return value if isinstance(value, str) and value else None


def _keys(fields: _Fields, aws: bool) -> tuple[str | None, str | None]:
    access_key = fields.plain("login") or (fields.text("aws_access_key_id") if aws else None)
    secret_key = fields.plain("password") or (fields.text("aws_secret_access_key") if aws else None)
    if access_key is None and secret_key is None and aws:
        return None, None
    if access_key is None:
        raise fields.wrong("login", "is empty: it is the access key")
    if secret_key is None:
        raise fields.wrong("password", "is empty: it is the secret key")
    return access_key, secret_key


def _endpoint(fields: _Fields, aws: bool) -> tuple[str, bool]:
    """
    Find the server.

    :return: (host and port, whether it speaks TLS).
    """
    given = fields.text("endpoint_url") or fields.service("endpoint_url")
    name = "extra.endpoint_url" if given else "host"
    given = given or fields.plain("host")
    if given is None:
        if not aws:
            raise fields.wrong("host", "is empty: name the S3 server there, such as http://127.0.0.1:9000")
        given, name = "https://s3.amazonaws.com", "host"
    parts = urlsplit(given if "://" in given else f"//{given}")
    try:
        port = parts.port
    except ValueError as error:
        raise fields.wrong(name, f"is {given!r}: {error}") from error
    if parts.scheme not in {"", "http", "https"} or parts.path.strip("/") or parts.query or parts.username is not None:
        raise fields.wrong(name, f"must be host, host:port or http(s)://host:port, got {_without_user(given)!r}")
    if not parts.hostname:
        raise fields.wrong(name, f"names no host: {given!r}")
    flag = fields.flag("secure")
    if parts.scheme and flag is not None and flag != (parts.scheme == "https"):
        raise fields.wrong("extra.secure", f"is {str(flag).lower()} and {name} says {parts.scheme}://: take one away")
    secure = parts.scheme == "https" if parts.scheme else flag is not False
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    own_port = port or (None if name == "extra.endpoint_url" else fields.plain("port"))
    return f"{host}:{own_port}" if own_port else host, secure


def _without_user(url: str) -> str:
    """Keep a password that someone put into a URL out of the message."""
    head, separator, tail = url.rpartition("@")
    return f"...@{tail}" if separator and head else url
