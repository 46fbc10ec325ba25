"""An artifact as an HTTP body, where an execution has recorded it: a result as JSON, a file as its bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, BinaryIO
from urllib.parse import quote

from fastapi.responses import Response, StreamingResponse

from airflow_aiflow.api.plain_value import plain, references
from airflow_aiflow.api.ranged_body import SAFE_HEADERS
from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.payload import decode
from airflow_aiflow.durable.ports import ArtifactStore
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import ArtifactError, ArtifactUnavailableError, PayloadError
from airflow_aiflow.runtime.readable import redacted
from airflow_aiflow.storage.payload_cipher import PayloadCipher

#: Bytes that are read at once.
PIECE = 1 << 18


def artifact_response(
    sha256: bytes,
    *,
    recorded: bool,
    step: Stored | None,
    given: bool = False,
    store: Callable[[], ArtifactStore],
    cipher: PayloadCipher,
    headers: Mapping[str, str],
) -> Response | None:
    """
    Give an artifact.

    :param sha256: its address.
    :param recorded: whether the execution has recorded it as a result.
    :param step: the result of a step that may name it.
    :param given: whether the step was given it as a file.
    :param store: gives the store.
    :param cipher: opens what is encrypted.
    :param headers: of the request: ``If-None-Match`` counts.
    :return: ``None``: the execution has not recorded it, or the store does not have it.
    :raises ArtifactUnavailableError: if the store can't be asked.
    """
    etag = f'"{sha256.hex()}"'
    try:
        ref = _named(sha256, step, store, cipher)
        if ref is None and not recorded and not given:
            return None
        if headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        if ref is not None:
            return _file(store().open_file(sha256), ref, etag)
        if not recorded:
            return StreamingResponse(
                _pieces(store().open_file(sha256)),
                media_type="application/octet-stream",
                headers=_headers(etag, sha256.hex()[:16]),
            )
        return _value(store().get_value(sha256), sha256, cipher, etag)
    except ArtifactUnavailableError:
        raise
    except (ArtifactError, PayloadError):
        return None


def _named(
    sha256: bytes, step: Stored | None, store: Callable[[], ArtifactStore], cipher: PayloadCipher
) -> ArtifactRef | None:
    """Find a file by its address in what a step gave."""
    if step is None:
        return None
    data = step.inline
    if data is None:
        assert step.sha256 is not None
        if step.sha256 == sha256:
            return None
        data = store().get_value(step.sha256)
    value = decode(cipher.open(data, "it"))
    return next((ref for ref in references(value) if ref.sha256 == sha256.hex()), None)


def _value(data: bytes, sha256: bytes, cipher: PayloadCipher, etag: str) -> Response:
    value: Any = redacted(decode(cipher.open(data, "it")))
    body = json.dumps(plain(value), ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(body, media_type="application/json", headers=_headers(etag, f"{sha256.hex()[:16]}.json"))


def _file(stream: BinaryIO, ref: ArtifactRef, etag: str) -> Response:
    headers = _headers(etag, ref.name or ref.sha256[:16]) | {"Content-Length": str(ref.size)}
    return StreamingResponse(_pieces(stream), media_type="application/octet-stream", headers=headers)


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    with closing(stream):
        while piece := stream.read(PIECE):
            yield piece


def _headers(etag: str, name: str) -> dict[str, str]:
    return SAFE_HEADERS | {"ETag": etag, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
