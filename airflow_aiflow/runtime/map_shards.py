"""
Results of a map as files in the artifact store: JSON lines, in the order of the items, with a manifest.

The files are named by what is in them, so a resumed map that writes them again writes the same ones.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any, BinaryIO, cast

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.runtime.files import save_file
from airflow_aiflow.runtime.session import Session

#: Bytes of a file: one that is read whole fits into any worker, and a million items of 1 KiB make thirty.
SHARD_BYTES = 32 << 20

#: Bytes that stay in memory before a temporary file takes them.
IN_MEMORY = 4 << 20

JSON_LINES = "application/jsonl"


class ShardWriter:
    """
    Write results, one line each; a failed item's is ``null``.

    :param session: the attempt at work.
    :param name: the map's name.
    :param size: bytes after which the next file begins.
    """

    def __init__(self, session: Session, name: str, size: int = SHARD_BYTES) -> None:
        self._session, self._name, self._size = session, name, size
        self._shards: list[dict[str, Any]] = []
        self._stream: BinaryIO | None = None
        self._lines = 0
        self._bytes = 0

    def write(self, value: Any) -> None:
        """
        Take the next result.

        :param value: as the item gave it.
        :raises FlowOptionError: if it holds a secret, which would lie in the file in clear.
        """
        secret = self._session.payloads.secret_in(value)
        if secret:
            raise FlowOptionError(
                f"a result of '{self._name}' holds a secret that Airflow masks (at {secret}); it would lie in clear "
                "in a file. Leave it out of the result, or take results='list'"
            )
        line = encode(value).data
        if self._stream is None:
            # Closed by `_store` or `drop`.
            self._stream = cast("BinaryIO", tempfile.SpooledTemporaryFile(IN_MEMORY))  # noqa: SIM115
        self._stream.write(line + b"\n")
        self._lines += 1
        self._bytes += len(line) + 1
        if self._bytes >= self._size:
            self._store()

    def _store(self) -> None:
        if self._stream is None:
            return
        with self._stream as stream:
            ref = save_file(self._session, stream, f"{self._name}-{len(self._shards):05d}.jsonl", JSON_LINES)
        self._shards.append(ref.to_plain() | {"items": self._lines})
        self._stream, self._lines, self._bytes = None, 0, 0

    def close(self, failed: int) -> ArtifactRef:
        """
        Store what is left, and the manifest.

        :param failed: how many items have no result.
        :return: the manifest: JSON with ``map``, ``items``, ``failed`` and ``shards``.
        """
        self._store()
        items = sum(shard["items"] for shard in self._shards)
        manifest = {"map": self._name, "items": items, "failed": failed, "shards": self._shards}
        text = json.dumps(manifest, ensure_ascii=False, indent=1)
        return save_file(self._session, text.encode(), f"{self._name}-manifest.json", "application/json")

    def drop(self) -> None:
        """Let go of what is not stored: the map failed."""
        if self._stream is not None:
            self._stream.close()
