"""What a server needs of an artifact store beyond what a task does: large things in pieces, and from the middle."""

from __future__ import annotations

from typing import BinaryIO, Protocol

from airflow_aiflow.durable.ports import ArtifactStore


class PartialReads(ArtifactStore, Protocol):
    """Give artifacts without holding one in memory. Both methods raise what ``ArtifactStore`` says."""

    def open_value(self, sha256: bytes) -> BinaryIO:
        """
        Open an encoded value for reading once, in order; its last bytes come only if the whole is what it should be.

        :param sha256: its address.
        """

    def open_part(self, sha256: bytes, first: int, size: int, *, total: int) -> BinaryIO:
        """
        Open a part of a stored file for reading once, in order. A part can't be verified: who puts parts together
        compares the hash of the whole with its address.

        :param sha256: the file's address.
        :param first: number of the first byte, from 0.
        :param size: bytes.
        :param total: bytes of the whole file; another size is damage.
        """
