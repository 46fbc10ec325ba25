"""A result as an HTTP body: JSON, or an artifact's own bytes; whole, or the range that a client still lacks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi.responses import Response

from airflow_aiflow.api.problem import problem
from airflow_aiflow.durable.artifact import ArtifactRef

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")

#: Of an answer whose bytes a pipeline made: it is data, whatever it looks like, and never a page of this site.
SAFE_HEADERS = {
    "Cache-Control": "no-cache, private",
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


def result_response(value: Any, headers: Mapping[str, str]) -> Response:
    """
    Write a result.

    :param value: what the task returned.
    :param headers: of the request: ``Range``, ``If-Range`` and ``If-None-Match`` count.
    """
    if isinstance(value, ArtifactRef):
        body, media_type = value.load(), value.media_type or "application/octet-stream"
        data = body if isinstance(body, bytes) else _as_json(body)
    else:
        data, media_type = _as_json(value), "application/json"
    etag = f'"{hashlib.sha256(data).hexdigest()}"'
    base = SAFE_HEADERS | {"ETag": etag, "Accept-Ranges": "bytes"}
    if headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=base)
    wanted = headers.get("range")
    if wanted is None or headers.get("if-range", etag) != etag:
        return Response(data, 200, headers=base, media_type=media_type)
    part = _part(wanted, len(data))
    if part is None:
        return problem(416, f"the result has {len(data)} bytes", {"Content-Range": f"bytes */{len(data)}"})
    first, last = part
    base["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return Response(data[first : last + 1], 206, headers=base, media_type=media_type)


def _as_json(value: Any) -> bytes:
    from airflow_aiflow.durable.payload import encode

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError):
        # What JSON does not have is written as the ledger writes it: tagged, and nothing lost.
        return encode(value).data


def _part(text: str, size: int) -> tuple[int, int] | None:
    found = _RANGE.fullmatch(text.strip())
    if found is None or found.groups() == ("", ""):
        return None
    start, end = found.groups()
    if not start:
        first, last = max(0, size - int(end)), size - 1
    else:
        first, last = int(start), min(int(end), size - 1) if end else size - 1
    return (first, last) if first <= last else None
