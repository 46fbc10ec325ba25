"""Artifact stores under test, with the same doors into what they keep."""

from __future__ import annotations

import hashlib
import io
import random
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from airflow_aiflow.durable.artifact_parts import PartialReads
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings

SEED = 20261130
BUCKET = "artifacts-under-test"


def content(size: int, seed: int = SEED) -> bytes:
    """Give bytes that do not compress, the same ones each time."""
    return random.Random(seed).randbytes(size)


def sha(data: bytes) -> bytes:
    """Give the address of bytes."""
    return hashlib.sha256(data).digest()


class ArtifactWorld(Protocol):
    """A store and what stands behind it."""

    @property
    def store(self) -> PartialReads:
        """Give the store."""

    def objects(self) -> set[str]:
        """Give the addresses of all that is kept."""

    def corrupt(self, sha256: bytes) -> None:
        """Change what is kept under a hash, not its size."""

    def lose(self, sha256: bytes) -> None:
        """Remove what is kept under a hash."""


class MemoryArtifactWorld:
    """The store in memory."""

    def __init__(self) -> None:
        self.store = MemoryArtifactStore()

    def objects(self) -> set[str]:
        """Give the addresses of all that is kept."""
        return self.store.addresses()

    def corrupt(self, sha256: bytes) -> None:
        """Flip a bit."""
        self.store.corrupt(sha256)

    def lose(self, sha256: bytes) -> None:
        """Remove it."""
        self.store.lose(sha256)


class S3ArtifactWorld:
    """
    A prefix of its own on the real server.

    One bucket serves all: the server keeps volumes for each, and runs out of them (after 73, with 78 GB of disk free).

    :param server: the server.
    :param endpoint: where the store is to find it; ``None``: where it is.
    :param prefix: ``None``: a new one.
    """

    def __init__(
        self,
        server: ObjectStoreServer,
        endpoint: str | None = None,
        *,
        patience: float = 10.0,
        prefix: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        renew: Callable[[], S3Settings] | None = None,
        **changes: str,
    ) -> None:
        self.client = server.client()
        self.bucket = server.bucket(BUCKET)
        fields = {"access_key": server.access_key, "secret_key": server.secret_key, "region": server.region, **changes}
        self.settings = S3Settings(
            endpoint=endpoint or server.endpoint,
            secure=False,
            prefix=f"test-{uuid.uuid4().hex}/aiflow" if prefix is None else prefix,
            origin="connection 'aiflow_artifacts'",
            **{"bucket": self.bucket, **fields},
        )
        self.bucket = self.settings.bucket
        self.store = S3ArtifactStore(self.settings, patience=patience, renew=renew, sleep=sleep)

    def objects(self) -> set[str]:
        """Give the keys of all that is kept."""
        return {
            str(each.object_name)
            for each in self.client.list_objects(self.bucket, self.settings.prefix, recursive=True)
        }

    def uploads(self) -> list[str]:
        """Give the keys of unfinished uploads."""
        listing = self.client._list_multipart_uploads(self.bucket, prefix=self.settings.prefix)
        return [each.object_name for each in listing.uploads]

    def keys(self, sha256: bytes) -> list[str]:
        """Give the keys that hold a hash."""
        return [key for key in self.objects() if sha256.hex() in key]

    def corrupt(self, sha256: bytes) -> None:
        """Flip a bit of each object."""
        for key in self._some_keys(sha256):
            data = bytearray(self.read(key))
            if data:
                data[len(data) // 2] ^= 1
            else:
                data = bytearray(b"\x00")
            self.client.put_object(self.bucket, key, io.BytesIO(data), len(data))

    def lose(self, sha256: bytes) -> None:
        """Remove each object."""
        for key in self._some_keys(sha256):
            self.client.remove_object(self.bucket, key)

    def read(self, key: str) -> bytes:
        """Read an object by the bare SDK."""
        response = self.client.get_object(self.bucket, key)
        try:
            return bytes(response.read())
        finally:
            response.close()
            response.release_conn()

    def _some_keys(self, sha256: bytes) -> list[str]:
        keys = self.keys(sha256)
        assert keys, f"nothing is stored under {sha256.hex()}"
        return keys


def unknown_bucket() -> str:
    """Give a bucket name that nobody has."""
    return f"missing-{uuid.uuid4().hex[:12]}"
