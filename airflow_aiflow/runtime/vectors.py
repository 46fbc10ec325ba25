"""
Vectors as binary artifacts: a file for each batch, and one for the whole list in its order.

A text's record says where its vector lies: in which batch's file, and in which row. Files are Arrow's, float32, so that
any tool reads them; those of batches go through the payload cipher, where one is configured, for vectors tell much of
the texts that they were made of. The file of the whole list is a saved artifact, and in clear as all of those are.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import AiflowConfigError, ArtifactUnavailableError, FlowOptionError
from airflow_aiflow.runtime.files import save_file
from airflow_aiflow.runtime.session import Session

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

#: What the file of a list is called in HTTP; its one column is ``vector``.
ARROW = "application/vnd.apache.arrow.file"
COLUMN = "vector"

#: Vectors that are written to the file of a list at once: at 1,536 numbers each 25 MB.
ROWS_AT_ONCE = 4_096

#: Bytes of a file that stay in memory before a temporary file takes them.
IN_MEMORY = 16 << 20


def require_arrow() -> None:
    """
    See that vectors can be stored, before any is paid for.

    :raises AiflowConfigError: if pyarrow or numpy is missing.
    """
    try:
        import_module("numpy")
        import_module("pyarrow")
    except ImportError as error:
        raise AiflowConfigError(
            f"flow.embed needs the extra: pip install 'airflow-aiflow[batch]' ({error}). Nothing was sent"
        ) from error


def store_batch(session: Session, name: str, vectors: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """
    Store the vectors of a batch, and say where each lies.

    :param session: the attempt at work.
    :param name: of the step.
    :param vectors: float32, a row for each text.
    :return: a plain place for each row; the vector itself where the store can't be asked, since it is paid for.
    """
    import pyarrow as pa

    width = int(vectors.shape[1])
    sink = pa.BufferOutputStream()
    _write(sink, width, [vectors])
    try:
        sha256 = session.payloads.put(sink.getvalue().to_pybytes(), name)
    except ArtifactUnavailableError as error:
        session.services.host.log(f"the vectors of '{name}' are kept in the ledger's rows: {error}", warning=True)
        return [{"vector": row.tobytes(), "width": width} for row in vectors]
    return [{"batch": sha256.hex(), "row": row, "width": width} for row in range(len(vectors))]


class VectorPlaces:
    """Keep, from the map's own thread, where the vector of each text lies."""

    wanted = True
    full = False

    def __init__(self) -> None:
        #: How many numbers a vector has; ``None``: none came yet.
        self.width: int | None = None
        self._batches: dict[str, int] = {}
        self._batch, self._row = array("q"), array("q")
        self._loose: dict[int, bytes] = {}
        #: The texts that have none.
        self.failed: set[int] = set()

    def put(self, number: int, value: Mapping[str, Any]) -> None:
        """
        Keep a place.

        :param number: of the text, from 0.
        :param value: what ``store_batch`` gave.
        :raises FlowOptionError: if it is a vector of another width than those before it.
        """
        if self.width is None:
            self.width = value["width"]
        if value["width"] != self.width:
            raise FlowOptionError(
                f"vectors of {self.width} and of {value['width']} numbers are recorded for this list: the model behind "
                f"the connection is another one now. Give version= a new value, and all texts are embedded anew"
            )
        self._make_room(number)
        if "vector" in value:
            self._loose[number] = value["vector"]
        else:
            self._batch[number] = self._batches.setdefault(value["batch"], len(self._batches))
            self._row[number] = value["row"]

    def fail(self, number: int, error: BaseException) -> None:
        """Keep that a text has no vector."""
        self._make_room(number)
        self.failed.add(number)

    def _make_room(self, number: int) -> None:
        missing = number + 1 - len(self._batch)
        self._batch.extend([-1] * missing)
        self._row.extend([-1] * missing)

    def read_into(self, session: Session, name: str, matrix: np.ndarray[Any, Any]) -> None:
        """
        Read every vector, each file once.

        :param session: the attempt at work.
        :param name: of the step.
        :param matrix: gets them, a row for each text.
        """
        import numpy as np

        batches, rows = np.frombuffer(self._batch, np.int64), np.frombuffer(self._row, np.int64)
        in_order = np.argsort(batches, kind="stable")
        starts = np.searchsorted(batches[in_order], np.arange(len(self._batches) + 1))
        for sha256, batch in self._batches.items():
            texts = in_order[starts[batch] : starts[batch + 1]]
            content = session.payloads.raw(Stored(sha256=bytes.fromhex(sha256)), name)
            matrix[texts] = _read(content)[rows[texts]]
        for number, vector in self._loose.items():
            matrix[number] = np.frombuffer(vector, np.float32)
        if self.failed:
            matrix[sorted(self.failed)] = np.nan


def save_list(
    session: Session, name: str, order: array[int], places: VectorPlaces, *, gaps: bool = False
) -> ArtifactRef:
    """
    Store the vectors of a list as one file.

    :param session: the attempt at work.
    :param name: of the step.
    :param order: for each text of the list, which of the distinct ones it is.
    :param places: where their vectors lie.
    :param gaps: whether a text may have none: its row is then ``null``.
    """
    import numpy as np

    distinct, width = max(order, default=-1) + 1, places.width or 0
    with (
        tempfile.TemporaryFile() as scratch,
        tempfile.SpooledTemporaryFile(IN_MEMORY) as file,
    ):
        # On disk: the vectors of a million texts are larger than a worker's memory.
        shape = (distinct, width)
        matrix = np.memmap(cast("Any", scratch), np.float32, "w+", shape=shape) if distinct else np.zeros(shape)
        if distinct:
            places.read_into(session, name, matrix)
        numbers = np.frombuffer(order, np.int64) if order else np.zeros(0, np.int64)
        parts = (matrix[numbers[at : at + ROWS_AT_ONCE]] for at in range(0, len(numbers), ROWS_AT_ONCE))
        _write(file, width, parts, gaps=gaps)
        file.seek(0)
        return save_file(session, cast("BinaryIO", file), f"{name}.arrow", ARROW)


def read_vectors(ref: ArtifactRef) -> np.ndarray[Any, Any]:
    """
    Read what ``flow.embed`` gave.

    :param ref: its reference.
    :return: float32, a row for each text; of NaN where it has no vector.
    :raises FlowOptionError: if it refers to something else.
    """
    if ref.media_type != ARROW:
        raise FlowOptionError(f"'{ref.name}' is {ref.media_type}, and no file of vectors that flow.embed gave")
    return _read(ref.load())


def _schema(width: int, *, gaps: bool) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(COLUMN, pa.list_(pa.field("item", pa.float32(), nullable=False), width), nullable=gaps)])


def _write(sink: Any, width: int, parts: Any, *, gaps: bool = False) -> None:
    import numpy as np
    import pyarrow as pa

    schema = _schema(width, gaps=gaps)
    with pa.ipc.new_file(sink, schema) as writer:
        for part in parts:
            # No vector that is recorded holds NaN: a row of it is one that is missing.
            mask = pa.array(np.isnan(part).any(axis=1)) if gaps else None
            numbers = pa.array(np.ascontiguousarray(part, np.float32).reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(numbers, type=schema.field(COLUMN).type, mask=mask)
            writer.write_batch(pa.record_batch([vectors], schema=schema))


def _read(content: bytes) -> np.ndarray[Any, Any]:
    import numpy as np
    import pyarrow as pa

    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    column: Sequence[Any] = table.column(COLUMN).chunks
    width = table.schema.field(COLUMN).type.list_size
    if not column:
        return np.zeros((0, width), np.float32)
    # `flatten` leaves out the rows that are null; below those stands NaN.
    return np.concatenate([chunk.values.to_numpy() for chunk in cast("Any", column)]).reshape(-1, width)
