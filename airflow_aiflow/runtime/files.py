"""Save what an author gives as an artifact: bytes as they are, other values in the payload form."""

from __future__ import annotations

import io
import mimetypes
from pathlib import Path
from typing import Any, BinaryIO

from airflow_aiflow.durable.artifact import DEFAULT_MEDIA_TYPE, PAYLOAD_MEDIA_TYPE, TEXT_MEDIA_TYPE, ArtifactRef
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.runtime.session import Session


def save_file(session: Session, value: Any, name: str | None, media_type: str | None) -> ArtifactRef:
    """
    Store a value in the artifact store.

    :param session: the attempt at work.
    :param value: text, bytes, a ``Path``, a binary stream, or anything that can be stored.
    :param name: what people see.
    :param media_type: ``None``: guessed from the name, or by what the value is.
    """
    if name is None and isinstance(value, Path):
        name = value.name
    guessed = media_type or (mimetypes.guess_type(name)[0] if name else None)
    stream, fallback = _stream(session, value)
    kind = guessed or fallback
    if isinstance(value, str) and kind.startswith("text/") and "charset" not in kind:
        kind += "; charset=utf-8"
    try:
        sha256, size = session.services.store().put_file(stream, media_type=kind)
    finally:
        if stream is not value:  # the author's own stays open
            stream.close()
    uri = session.services.store().uri(sha256)
    return ArtifactRef(sha256=sha256.hex(), size=size, media_type=kind, name=name, uri=uri)


def _stream(session: Session, value: Any) -> tuple[BinaryIO, str]:
    if isinstance(value, bytes | bytearray | memoryview):
        return io.BytesIO(bytes(value)), DEFAULT_MEDIA_TYPE
    if isinstance(value, Path):
        return value.open("rb"), DEFAULT_MEDIA_TYPE
    if hasattr(value, "read"):
        return value, DEFAULT_MEDIA_TYPE
    secret = session.payloads.secret_in(value)
    if secret:
        raise FlowOptionError(
            f"save(): the value holds a secret that Airflow masks (at {secret}); it would lie there in clear"
        )
    if isinstance(value, str):
        return io.BytesIO(value.encode()), TEXT_MEDIA_TYPE
    return io.BytesIO(encode(value).data), PAYLOAD_MEDIA_TYPE
