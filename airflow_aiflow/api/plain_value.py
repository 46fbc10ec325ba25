"""Values as JSON for people's eyes: what JSON does not have becomes a text, and what is long is cut."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.artifact import ArtifactRef

#: Bytes of a value that is sent to a page.
MOST_BYTES = 16_384

#: Characters of a text, members of a list or mapping, and depth, where a value is too large as a whole.
MOST_TEXT, MOST_MEMBERS, MOST_DEPTH = 2_000, 50, 20

#: Beyond it a browser rounds whole numbers.
EXACT = 2**53


def plain(value: Any, depth: int = 0) -> Any:
    """
    Give a value as plain JSON.

    :param value: what a payload holds.
    :param depth: how deep it lies.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return value if abs(value) <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > MOST_DEPTH:
        return "..."
    if isinstance(value, ArtifactRef):
        return value.to_plain()
    if isinstance(value, Mapping):
        return {str(plain(key, depth + 1)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return f"({len(value):,} bytes)"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    return repr(value)[:MOST_TEXT]


def shortened(value: Any, most: int = MOST_BYTES) -> tuple[Any, bool]:
    """
    Give a value as plain JSON of at most about so many bytes.

    :param value: what a payload holds.
    :param most: bytes.
    :return: the value, and whether it was cut.
    """
    whole = plain(value)
    if len(json.dumps(whole)) <= most:
        return whole, False
    members, text = MOST_MEMBERS, MOST_TEXT
    while members:
        short = _short(whole, members, text)
        if len(json.dumps(short)) <= most:
            return short, True
        members, text = members // 3, max(20, text // 3)
    return json.dumps(whole)[: most // 2] + "...", True


def _short(value: Any, members: int, text: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= text else f"{value[:text]}... ({len(value):,} characters)"
    if isinstance(value, dict):
        kept = {key[:text]: _short(item, members, text) for key, item in list(value.items())[:members]}
        return kept if len(value) <= members else kept | {"...": f"{len(value) - members:,} more"}
    if isinstance(value, list):
        short = [_short(item, members, text) for item in value[:members]]
        return short if len(value) <= members else [*short, f"... {len(value) - members:,} more"]
    return value


def references(value: Any) -> Iterator[ArtifactRef]:
    """
    Find the artifacts that a value names.

    :param value: what a payload holds.
    """
    if isinstance(value, ArtifactRef):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from references(item)
