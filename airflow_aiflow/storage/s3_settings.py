"""
Where artifacts live and with which keys, as one checked value.

Nothing here speaks to the server. The keys are kept out of ``repr``, so that no log and no traceback shows them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from airflow_aiflow.exceptions import AiflowConfigError

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
_ENDPOINT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+)(:[0-9]{1,5})?")
#: One segment of a prefix: what every S3 server, URL and file system takes as it stands.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_=+@.\-]+")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """
    Hold how to reach a bucket.

    :param endpoint: ``host`` or ``host:port``, without a scheme.
    :param bucket: an existing bucket.
    :param access_key: ``None`` takes the AWS chain: environment, profile, role of the machine.
    :param prefix: where in the bucket; segments joined by ``/``.
    :param secure: whether to speak TLS.
    :param region: ``None`` asks AWS, and is ``us-east-1`` everywhere else.
    :param verify: whether to check the server's certificate, or the file of the authorities to trust.
    :param public_url: where people's browsers reach the same server, when that is not the endpoint.
    :param origin: what to name in an error, such as ``connection 'aiflow_artifacts'``.
    """

    endpoint: str
    bucket: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    prefix: str = ""
    secure: bool = True
    region: str | None = None
    verify: bool | str = True
    public_url: str | None = None
    profile: str | None = None
    origin: str = "the artifact store's settings"

    def __post_init__(self) -> None:
        if not _ENDPOINT.fullmatch(self.endpoint):
            raise self._wrong("the endpoint", self.endpoint, "give host:port without a path")
        if not _BUCKET.fullmatch(self.bucket) or ".." in self.bucket:
            raise self._wrong("bucket", self.bucket, "3 to 63 of a-z, 0-9, '-' and '.'")
        for segment in self.prefix.split("/") if self.prefix else ():
            if not _SEGMENT.fullmatch(segment) or segment in {".", ".."}:
                raise self._wrong(
                    "prefix", self.prefix, "segments of A-Z a-z 0-9 _ = + @ . - joined by '/', no dot segments"
                )
        if (self.access_key is None) != (self.secret_key is None):
            raise AiflowConfigError(
                f"{self.origin}: the access key and the secret key go together, one of them is missing"
            )
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme not in {"http", "https"} or not _ENDPOINT.fullmatch(parts.netloc) or parts.path.strip("/"):
                raise self._wrong("public_url", self.public_url, "give http(s)://host:port without a path")

    @property
    def address(self) -> str:
        """Give the server's address for people."""
        return f"{'https' if self.secure else 'http'}://{self.endpoint}"

    def key(self, kind: str, name: str) -> str:
        """
        Give the key of a content-addressed object; two leading digits keep folders small on servers that have them.

        :param kind: ``value`` or ``file``.
        :param name: the hash in hex, with the suffix that the kind has.
        """
        return "/".join(part for part in (self.prefix, kind, name[:2], name) if part)

    def _wrong(self, what: str, value: str, rule: str) -> AiflowConfigError:
        return AiflowConfigError(f"{self.origin}: {what} {value!r} is not usable: {rule}")
