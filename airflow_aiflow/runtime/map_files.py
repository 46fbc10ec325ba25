"""
Items out of a file, one at a time: JSON lines, CSV, Parquet, and the manifest of a map's or a batch's results.

A line that can't be read names its number. How many items a file has is known of Parquet and of a manifest; of the
others how many of their bytes have been read, which tells about how far a map is.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.exceptions import ArtifactError, FlowOptionError, ItemFileError, PayloadDecodeError
from airflow_aiflow.runtime.map_source import Unreadable
from airflow_aiflow.runtime.parquet import MEDIA_TYPE as PARQUET
from airflow_aiflow.runtime.parquet import open_rows

#: Bytes that are read at once.
CHUNK = 1 << 20

#: Bytes of a Parquet file that stay in memory; its end must be read first, so it is fetched whole.
IN_MEMORY = 8 << 20

#: Characters of a field of CSV: Python's own limit of 131,072 is less than a document has, and the lines of a field
#: that is given up in its middle are taken for rows.
LONGEST_FIELD = 16 << 20

#: Content type -> kind of file.
MEDIA_TYPES = {
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/x-jsonlines": "jsonl",
    "text/csv": "csv",
    PARQUET: "parquet",
}

#: End of a name -> kind of file.
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}

#: The manifest of all results, or of the part of one mapped task.
MANIFEST = re.compile(r"manifest(-\d+-of-\d+)?\.json$")


@dataclass(frozen=True, slots=True)
class ItemFile:
    """
    Be a file of items, wherever it lies.

    :param name: for messages.
    :param kind: ``jsonl``, ``csv``, ``parquet`` or ``manifest``.
    :param open: opens it for reading once, in order.
    :param size: bytes; ``None``: nobody knows.
    :param beside: gives a file that a manifest names, by what the manifest says of it.
    """

    name: str
    kind: str
    open: Callable[[], BinaryIO]
    size: int | None = None
    beside: Callable[[dict[str, Any]], ItemFile] | None = None


def kind_of(name: str, media_type: str = "") -> str | None:
    """
    Say what kind of file something is.

    :param name: of the file.
    :param media_type: its content type; empty: not known.
    :return: ``None``: none of those that hold items.
    """
    kind = MEDIA_TYPES.get(media_type.partition(";")[0].strip())
    if kind is not None:
        return kind
    if MANIFEST.search(name.lower()):
        return "manifest"
    return next((kind for suffix, kind in SUFFIXES.items() if name.lower().endswith(suffix)), None)


def items_of(items: Iterable[Any] | ArtifactRef) -> Iterable[Any]:
    """
    Read items, where they are in a file.

    :param items: as the author gave them.
    :raises FlowOptionError: if the file is of a kind that holds no items.
    """
    return FileItems(file_of(items)) if isinstance(items, ArtifactRef) else items


def file_of(ref: ArtifactRef) -> ItemFile:
    """
    Make a file of items of a stored one.

    :param ref: the stored one.
    :raises FlowOptionError: if it is of a kind that holds no items.
    """
    kind = kind_of(ref.name or "", ref.media_type)
    if kind is None:
        raise FlowOptionError(
            f"map(): items come from JSON lines (*.jsonl), CSV (*.csv) or Parquet (*.parquet); {ref.name or ref.uri} "
            f"is {ref.media_type}. Save it with name= or media_type=, or read it yourself and pass a generator"
        )
    return ItemFile(ref.name or ref.uri, kind, ref.open, ref.size, _stored_shard)


def _stored_shard(said: dict[str, Any]) -> ItemFile:
    try:
        return file_of(ArtifactRef.from_plain({name: said[name] for name in ArtifactRef.__dataclass_fields__}))
    except (KeyError, PayloadDecodeError) as error:
        raise ItemFileError(f"the manifest names a file that is none of the artifact store's: {error}") from error


class FileItems:
    """
    Be the items of a file; read once.

    :param file: which one.
    """

    def __init__(self, file: ItemFile) -> None:
        self._file = file
        self._read = 0
        #: How many items there are; ``None``: only its end tells.
        self.length: int | None = None
        self._items: Iterator[Any]
        if file.kind == "parquet":
            self.length, self._items = _parquet(file)
        elif file.kind == "manifest":
            self.length, self._items = _manifest(file)
        else:
            self._items = _json_lines(file, self._lines) if file.kind == "jsonl" else _csv_rows(file, self._lines)

    def __iter__(self) -> Iterator[Any]:
        return self._items

    def share(self) -> float | None:
        """Say which share of the file has been read; ``None``: that is not known."""
        return None if not self._file.size else self._read / self._file.size

    def _lines(self, stream: BinaryIO) -> Iterator[bytes]:
        """Give lines without their ends; what follows the last end is one, too."""
        rest = b""
        while chunk := stream.read(CHUNK):
            at = self._read - len(rest)
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                at += len(line) + 1
                self._read = at
                yield line
            self._read = at + len(rest)
        if rest:
            yield rest


Lines = Callable[[BinaryIO], Iterator[bytes]]


def _json_lines(file: ItemFile, lines: Lines) -> Iterator[Any]:
    with closing(file.open()) as stream:
        for number, raw in enumerate(lines(stream), 1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError as error:  # of the decoding, too
                yield _unreadable(file, number, error)


def _csv_rows(file: ItemFile, lines: Lines) -> Iterator[Any]:
    with closing(file.open()) as stream:
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
        reader = csv.reader(_text(lines(stream)), strict=True)
        header = next(reader, None)
        if header is None:
            return
        _check_decoded(header)
        while True:
            begun = reader.line_num + 1
            try:
                row = next(reader, None)
                _check_decoded(row or ())
            except UnicodeDecodeError as error:
                yield _unreadable(file, reader.line_num, error)
                continue
            except csv.Error as error:
                if reader.line_num > begun:
                    # A quote that nobody closed: how many rows it took, and where the next one begins, nobody knows.
                    raise ItemFileError(f"{file.name}, from line {begun} on: {error}") from error
                yield _unreadable(file, reader.line_num or 1, error)
                continue
            if row is None:
                return
            if len(row) == len(header):
                yield dict(zip(header, row, strict=True))
            elif row:
                wrong = ValueError(f"it has {len(row)} fields, the header has {len(header)}")
                yield _unreadable(file, reader.line_num, wrong)


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    # What can't be decoded is its row's trouble: an error here would end the reading, and drop all rows after it.
    for number, line in enumerate(lines):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8", "surrogateescape") + "\n"


def _check_decoded(row: Iterable[str]) -> None:
    for field in row:
        if not field.isascii():
            field.encode("utf-8", "surrogateescape").decode()


def _unreadable(file: ItemFile, line: int, error: Exception) -> Unreadable:
    return Unreadable(ItemFileError(f"{file.name}, line {line}: {type(error).__name__}: {error}"))


def _parquet(file: ItemFile) -> tuple[int, Iterator[Any]]:
    stream = cast("BinaryIO", tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115  # closed with its last row
    try:
        with closing(file.open()) as source:
            shutil.copyfileobj(source, stream, CHUNK)
        stream.seek(0)
        length, rows = open_rows(stream, file.name)
    except BaseException:
        stream.close()
        raise
    return length, _closing(stream, rows)


def _closing(stream: BinaryIO, rows: Iterator[Any]) -> Iterator[Any]:
    with stream:
        yield from rows


def _manifest(file: ItemFile) -> tuple[int, Iterator[Any]]:
    try:
        with closing(file.open()) as stream:
            manifest = json.loads(stream.read())
        shards, length = list(manifest["shards"]), int(manifest["items"])
    except (ValueError, KeyError, TypeError) as error:
        raise ItemFileError(f"{file.name} is no manifest of results: {type(error).__name__}: {error}") from error
    return length, _of_shards(file, shards)


def _of_shards(file: ItemFile, shards: list[dict[str, Any]]) -> Iterator[Any]:
    assert file.beside is not None
    for shard in shards:
        try:
            yield from FileItems(file.beside(shard))
        except ArtifactError as error:
            error.add_note(f"aiflow: {file.name} names it; was the manifest replaced while it was read?")
            raise
