"""
``ArtifactRef``: what a task passes on instead of large bytes.

A reference is data: a hash, a size, a type, a name for people and an address. The hash alone finds the bytes and
decides identity; a name is never part of a key, a path or an identity, so that no name can reach outside the store or
collide with another. Reading needs a store, which the flow (or whoever runs the code) binds here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO, Final, Self

from airflow_aiflow.durable.payload_adapters import DEFAULT
from airflow_aiflow.durable.ports import ArtifactStore
from airflow_aiflow.exceptions import ArtifactDamagedError, NoFlowError, PayloadDecodeError, PayloadEncodeError

#: Gives the store when it is first needed: building one may look up a connection.
StoreResolver = Callable[[], ArtifactStore]

DEFAULT_LINK_LIFETIME: Final = timedelta(hours=1)
DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
#: Of a text that was saved: ``load`` gives a text back.
TEXT_MEDIA_TYPE: Final = "text/plain; charset=utf-8"
#: Of a value in the payload's form: ``load`` gives the value back.
PAYLOAD_MEDIA_TYPE: Final = "application/vnd.aiflow.payload+json"

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: type/subtype and parameters, in printable ASCII: it becomes an HTTP header.
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+\-]+/[A-Za-z0-9!#$&^_.+\-]+( *;[\x20-\x7e]*)?")
_CHARSET_UTF8: Final = re.compile(r"text/[^;]+;.*\bcharset=\"?utf-?8\"?(?![\w-]).*", re.IGNORECASE)

_bound: ContextVar[StoreResolver | None] = ContextVar("aiflow_artifact_store", default=None)
_default: StoreResolver | None = None


@contextmanager
def bind_store(resolver: StoreResolver) -> Iterator[None]:
    """
    Let references read from a store, in this context, until the block ends.

    :param resolver: gives the store; called at each use.
    """
    token = _bound.set(resolver)
    try:
        yield
    finally:
        _bound.reset(token)


def set_default_store(resolver: StoreResolver | None) -> None:
    """
    Let references read from a store where no flow has bound one, in the whole process.

    :param resolver: gives the store; ``None``: no default any more.
    """
    global _default
    _default = resolver


def current_store() -> ArtifactStore:
    """
    Give the store that references read from here.

    :raises NoFlowError: none is bound.
    """
    resolver = _bound.get() or _default
    if resolver is None:
        raise NoFlowError(
            "there is no artifact store here: an ArtifactRef reads its bytes inside a durable task, or inside "
            "'with Flow.from_context() as flow:' of a plain task; pass the reference on and read it there"
        )
    return resolver()


def checked_media_type(media_type: str) -> str:
    """
    Check a content type before anything is stored under it.

    :raises PayloadEncodeError: it is not ``type/subtype``, with parameters or without, in ASCII.
    """
    if not _MEDIA_TYPE.fullmatch(media_type):
        raise PayloadEncodeError(
            "media_type", f"{media_type!r} is not a content type such as 'text/html; charset=utf-8'"
        )
    return media_type


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """
    Refer to immutable bytes in the artifact store.

    :param sha256: of the bytes, in hex: their identity.
    :param size: bytes.
    :param media_type: their content type.
    :param name: what people call it; data only.
    :param uri: where they were stored.
    """

    sha256: str
    size: int
    media_type: str
    name: str | None
    uri: str

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"an ArtifactRef's sha256 is 64 hex digits in lower case, got {self.sha256!r}")
        if type(self.size) is not int or self.size < 0:
            raise ValueError(f"an ArtifactRef's size is a number of bytes, got {self.size!r}")
        if not isinstance(self.media_type, str) or not isinstance(self.uri, str):
            raise ValueError("an ArtifactRef's media_type and uri are texts")
        if self.name is not None and not isinstance(self.name, str):
            raise ValueError(f"an ArtifactRef's name is a text or None, got {type(self.name).__name__}")

    def load(self) -> Any:
        """
        Read all of it, verified.

        :return: a text where the media type is ``text/...; charset=utf-8``, the value where it is that of a stored
            value, else bytes.
        :raises NoFlowError: no store is bound here.
        :raises ArtifactMissingError: it is not in the store.
        :raises ArtifactDamagedError: the store holds other bytes.
        """
        with self.open() as stream:
            content = stream.read()
        if len(content) != self.size:
            raise ArtifactDamagedError(
                f"artifact {self.uri} has {len(content)} bytes where its reference says {self.size}: the reference was "
                "edited, it is not what the store gave"
            )
        if self.media_type == PAYLOAD_MEDIA_TYPE:
            from airflow_aiflow.durable.payload import decode

            return decode(content)
        return content.decode() if _CHARSET_UTF8.fullmatch(self.media_type) else content

    def open(self) -> BinaryIO:
        """
        Open it for reading once, in order; the last bytes come only if the whole is what it should be.

        :raises NoFlowError: no store is bound here.
        """
        return current_store().open_file(bytes.fromhex(self.sha256))

    def url(self, expires: timedelta | float = DEFAULT_LINK_LIFETIME) -> str:
        """
        Give a link that works without a log-in. Whoever has it can read the bytes until it expires.

        :param expires: how long it works, at most seven days; a number is seconds.
        :raises NoFlowError: no store is bound here.
        """
        seconds = expires.total_seconds() if isinstance(expires, timedelta) else float(expires)
        return current_store().url(
            bytes.fromhex(self.sha256), expires=seconds, name=self.name, media_type=self.media_type
        )

    def to_plain(self) -> dict[str, str | int | None]:
        """Give it as plain data."""
        return {
            "sha256": self.sha256,
            "size": self.size,
            "media_type": self.media_type,
            "name": self.name,
            "uri": self.uri,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, object]) -> Self:
        """
        Make one of plain data.

        :raises PayloadDecodeError: the data is not a reference's.
        """
        try:
            return cls(**dict(plain))  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise PayloadDecodeError(f"this is no ArtifactRef: {error}") from error

    def __aiflow_fingerprint__(self) -> str:
        """Count in a step's identity by the bytes alone: a renamed artifact replays."""
        return self.sha256


class ArtifactRefs:
    """Store references in payloads as themselves, so that a result may hold them without the reader naming a class."""

    tag = "artifact"

    def matches(self, value: object) -> bool:
        """Say whether a value is a reference; a subclass means more than its fields."""
        return type(value) is ArtifactRef

    def to_plain(self, value: ArtifactRef) -> dict[str, str | int | None]:
        """Give the fields."""
        return value.to_plain()

    def from_plain(self, plain: Any) -> ArtifactRef:
        """
        Build a reference of its fields.

        :raises TypeError: they are no mapping.
        :raises PayloadDecodeError: they are not a reference's.
        """
        if not isinstance(plain, dict):
            raise TypeError(f"a reference is a mapping, not {type(plain).__name__}")
        return ArtifactRef.from_plain(plain)


# Every process that meets a reference imports this module: nothing else has to remember to register it.
DEFAULT.register(ArtifactRefs())
