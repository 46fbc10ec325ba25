"""
Parquet as a batch's items and results, by pyarrow, which is imported where a Parquet file is met.

Rows come in groups of a few thousand, so memory does not grow with the file. What a result is, is its text: an answer
of a structured type is JSON in the column ``result``, for a column's type must not depend on what the first model
answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, BinaryIO

from airflow_aiflow.exceptions import AiflowConfigError, ItemFileError

#: Rows that are read at once.
ROWS = 1_000

#: Bytes of the reader's buffer: a column's pages are read by the piece, not whole.
BUFFER = 1 << 20

MEDIA_TYPE = "application/vnd.apache.parquet"


def _pyarrow() -> Any:
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise AiflowConfigError(f"Parquet needs the extra: pip install 'airflow-aiflow[batch]' ({error})") from error


def open_rows(
    stream: BinaryIO, name: str, columns: Sequence[str] | None = None
) -> tuple[int, Iterator[dict[str, Any]]]:
    """
    Open a Parquet file.

    :param stream: can seek; stays the caller's.
    :param name: of the file, for messages.
    :param columns: that are wanted; ``None``: all.
    :return: how many rows there are, and the rows.
    :raises ItemFileError: if it is no whole Parquet file, or lacks a column.
    :raises AiflowConfigError: if pyarrow is not installed.
    """
    arrow = _pyarrow()
    try:
        file = arrow.parquet.ParquetFile(stream, buffer_size=BUFFER, pre_buffer=False)
    except arrow.ArrowException as error:
        raise ItemFileError(f"{name} can't be read as Parquet (was it cut?): {error}") from error
    there = file.schema_arrow.names
    missing = [column for column in columns or () if column not in there]
    if missing:
        raise ItemFileError(f"{name} has no column {missing[0]!r}; its columns: {', '.join(there)}")
    return file.metadata.num_rows, _rows(arrow, file, name, columns)


def _rows(arrow: Any, file: Any, name: str, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        for batch in file.iter_batches(ROWS, columns=None if columns is None else list(columns)):
            for row in batch.to_pylist():
                number += 1
                yield row
    except (arrow.ArrowException, OSError) as error:
        raise ItemFileError(f"{name}, after row {number}: {type(error).__name__}: {error}") from error


class ParquetRows:
    """
    Write results as rows: ``item``, ``key``, ``result``, ``error``.

    :param stream: gets the file; stays the caller's.
    """

    def __init__(self, stream: BinaryIO) -> None:
        arrow = _pyarrow()
        self._arrow = arrow
        columns = [("item", arrow.int64()), ("key", arrow.string()), ("result", arrow.string())]
        self._schema = arrow.schema([*columns, ("error", arrow.string())])
        self._writer = arrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """
        Write a row.

        :param row: with a value for each column.
        """
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []

    def close(self) -> None:
        """Write what is left, and the file's end."""
        self._flush()
        self._writer.close()
