"""
The results of a batch as files that others read: one row for each item, in order, and a manifest that names the files.

A file's name holds a part of its hash, and the manifest is written last: whoever begins with the manifest reads either
the former results whole or the new ones whole, also while they are being replaced, and a retry writes the same files.
After a manifest is there, files that neither it nor the one before it names are removed.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Literal, cast, get_args

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.folder import Folder
from airflow_aiflow.durable.item_shard import ItemShard
from airflow_aiflow.exceptions import ArtifactError, ArtifactMissingError, FlowOptionError
from airflow_aiflow.runtime.parquet import MEDIA_TYPE as PARQUET
from airflow_aiflow.runtime.parquet import ParquetRows
from airflow_aiflow.runtime.session import Session

ResultFormat = Literal["jsonl", "parquet"]
FORMATS: tuple[ResultFormat, ...] = get_args(ResultFormat)

#: Bytes of rows in a file: one that is read whole fits into any worker.
FILE_BYTES = 32 << 20

#: Bytes that stay in memory before a temporary file takes them.
IN_MEMORY = 4 << 20

MEDIA_TYPES = {"jsonl": "application/jsonl", "parquet": PARQUET}

#: Digits of a file's hash in its name: no two contents of one place share them by chance.
HASH_DIGITS = 16


class ResultFiles:
    """
    Write results, one row each.

    :param session: the attempt at work.
    :param folder: where the files go.
    :param keys: of all items, in order.
    :param form: of the files.
    :param shard: which part of all items this is; ``None``: all of them.
    :param size: bytes after which the next file begins; ``None``: the usual number.
    :param tolerant: whether an answer that may not lie in a file is a failed item, and not the end.
    """

    def __init__(
        self,
        session: Session,
        folder: Folder,
        keys: Iterator[str | None],
        form: ResultFormat,
        shard: ItemShard | None,
        size: int | None = None,
        *,
        tolerant: bool = False,
    ) -> None:
        self._session, self._folder, self._keys = session, folder, keys
        self._form, self._shard, self._size = form, shard, size or FILE_BYTES
        self._tolerant = tolerant
        self._stem = "part" if shard is None else f"part-{shard}"
        self.manifest_name = "manifest.json" if shard is None else f"manifest-{shard}.json"
        self._files: list[dict[str, Any]] = []
        self._stream: BinaryIO | None = None
        self._parquet: ParquetRows | None = None
        self._item = self._rows = self._bytes = 0
        self.failed = 0

    @property
    def files(self) -> int:
        """How many files are stored."""
        return len(self._files)

    def write(self, value: Any) -> None:
        """
        Take the next result.

        :param value: as the item gave it.
        :raises FlowOptionError: if it holds a secret, which would lie in the file in clear, and no item may fail.
        """
        secret = self._session.payloads.secret_in(value)
        if secret:
            refused = FlowOptionError(
                f"the result of item {self._item} holds a secret that Airflow masks (at {secret}); it would lie in "
                "clear in a file. Leave it out of the answer"
            )
            if not self._tolerant:
                raise refused
            self.write_failed(refused)
            return
        from pydantic_core import to_jsonable_python

        self._row(to_jsonable_python(value, inf_nan_mode="strings"), None)

    def write_failed(self, error: BaseException) -> None:
        """
        Take the next failure.

        :param error: what became of the item.
        """
        self.failed += 1
        text = self._session.services.host.redact(str(error))[:2_000]
        self._row(None, {"type": type(error).__name__, "message": text.encode("utf-8", "backslashreplace").decode()})

    def _row(self, result: Any, error: Mapping[str, str] | None) -> None:
        row = {"item": self._item, "key": next(self._keys), "result": result, "error": error}
        if self._stream is None:
            # Closed by `_store` or `drop`.
            self._stream = cast("BinaryIO", tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115
            self._parquet = ParquetRows(self._stream) if self._form == "parquet" else None
        if self._parquet is not None:
            text = result if result is None or isinstance(result, str) else json.dumps(result, ensure_ascii=False)
            said = None if error is None else f"{error['type']}: {error['message']}"
            self._parquet.add({**row, "result": text, "error": said})
            self._bytes += len(text or said or "") + len(row["key"] or "")
        else:
            line = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
            self._stream.write(line)
            self._bytes += len(line)
        self._item += 1
        self._rows += 1
        if self._bytes >= self._size:
            self._store()

    def _store(self) -> None:
        if self._stream is None:
            return
        with self._stream as stream:
            if self._parquet is not None:
                self._parquet.close()
            digest, size = _hashed(stream)
            name = f"{self._stem}-{len(self._files):05d}-{digest[:HASH_DIGITS]}.{self._form}"
            self._folder.put(name, stream, media_type=MEDIA_TYPES[self._form])
        failpoint("after_shard", self._stem)
        file = {"name": name, "uri": self._folder.uri(name), "media_type": MEDIA_TYPES[self._form]}
        self._files.append({**file, "sha256": digest, "size": size, "items": self._rows})
        self._stream, self._parquet, self._rows, self._bytes = None, None, 0, 0

    def close(self, told: Mapping[str, Any]) -> str:
        """
        Store what is left, and then the manifest.

        :param told: what stands in the manifest beside the files.
        :return: the manifest's address.
        """
        self._store()
        former = self._former()
        manifest = {
            **told,
            "format": self._form,
            "shard": None if self._shard is None else [self._shard.index, self._shard.of],
            "items": self._item,
            "failed": self.failed,
            "shards": self._files,
        }
        text = json.dumps(manifest, ensure_ascii=False, indent=1).encode()
        failpoint("before_manifest", self._stem)
        self._folder.put(self.manifest_name, io.BytesIO(text), media_type="application/json", overwrite=True)
        failpoint("after_manifest", self._stem)
        self._tidy({file["name"] for file in self._files} | former)
        return self._folder.uri(self.manifest_name)

    def _former(self) -> set[str]:
        """Name the files of the manifest that is to be replaced: somebody may be reading them."""
        try:
            with self._folder.open(self.manifest_name) as stream:
                named = json.loads(stream.read())["shards"]
            return {str(each["name"]) for each in named}
        except (ArtifactMissingError, ValueError, TypeError, KeyError):
            return set()

    def _tidy(self, kept: set[str]) -> None:
        """Remove what killed attempts and older results left; what can't be removed stays, and harms nobody."""
        ours = re.compile(rf"{re.escape(self._stem)}-\d{{5}}-[0-9a-f]{{{HASH_DIGITS}}}\.(jsonl|parquet)")
        try:
            for name in self._folder.names():
                if name not in kept and ours.fullmatch(name):
                    self._folder.remove(name)
        except ArtifactError as error:
            self._session.services.host.log(f"aiflow: older results were not removed: {error}", warning=True)

    def drop(self) -> None:
        """Let go of what is not stored: the batch failed."""
        if self._stream is not None:
            self._stream.close()


def _hashed(stream: BinaryIO) -> tuple[str, int]:
    stream.seek(0)
    digest, size = hashlib.sha256(), 0
    while piece := stream.read(1 << 20):
        digest.update(piece)
        size += len(piece)
    stream.seek(0)
    return digest.hexdigest(), size
