"""Items out of a stored file, one line at a time: JSON lines and CSV. A line that can't be read names its number."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import FlowOptionError, ItemFileError
from airflow_aiflow.runtime.map_source import Unreadable

#: Bytes that are read at once.
CHUNK = 1 << 20

JSON_LINES = ("application/jsonl", "application/x-ndjson", "application/x-jsonlines")


def items_of(items: Iterable[Any] | ArtifactRef) -> Iterable[Any]:
    """
    Read items, where they are in a file.

    :param items: as the author gave them.
    :raises FlowOptionError: if the file is of another kind than JSON lines or CSV.
    """
    if not isinstance(items, ArtifactRef):
        return items
    kind, name = items.media_type.partition(";")[0].strip(), (items.name or "").lower()
    if kind in JSON_LINES or name.endswith((".jsonl", ".ndjson")):
        return _json_lines(items)
    if kind == "text/csv" or name.endswith(".csv"):
        return _csv_rows(items)
    raise FlowOptionError(
        f"map(): items come from JSON lines (*.jsonl) or CSV (*.csv); {items.name or items.uri} is {items.media_type}. "
        "Save it with name= or media_type=, or read it yourself and pass a generator"
    )


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Give lines without their ends; what follows the last end is one, too."""
    rest = b""
    while chunk := stream.read(CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _json_lines(ref: ArtifactRef) -> Iterator[Any]:
    with ref.open() as stream:
        for number, raw in enumerate(_lines(stream), 1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:  # of the decoding, too
                yield _unreadable(ref, number, error)


def _csv_rows(ref: ArtifactRef) -> Iterator[Any]:
    with ref.open() as stream:
        reader = csv.reader(_text(_lines(stream)), strict=True)
        header = next(reader, None)
        if header is None:
            return
        while True:
            try:
                row = next(reader, None)
            except (csv.Error, UnicodeDecodeError) as error:
                yield _unreadable(ref, reader.line_num or 1, error)
                continue
            if row is None:
                return
            if len(row) == len(header):
                yield dict(zip(header, row, strict=True))
            elif row:
                wrong = ValueError(f"it has {len(row)} fields, the header has {len(header)}")
                yield _unreadable(ref, reader.line_num, wrong)


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8") + "\n"


def _unreadable(ref: ArtifactRef, line: int, error: Exception) -> Unreadable:
    return Unreadable(ItemFileError(f"{ref.name or ref.uri}, line {line}: {type(error).__name__}: {error}"))
