"""
Large inputs: announced with their hash, put into the artifact store by the client itself, checked before they are used.

An input names an upload as ``{"$upload": "<id>"}``; the pipeline gets an artifact's reference in its place, so that
neither the run's ``conf`` nor XCom holds the bytes. Two uploads of the same bytes are the same input.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Protocol
from uuid import UUID

from airflow_aiflow.durable.artifact import DEFAULT_MEDIA_TYPE, ArtifactRef, checked_media_type
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.ports import ArtifactStore
from airflow_aiflow.durable.submission import DEPTH, pointer
from airflow_aiflow.exceptions import ArtifactMissingError, PayloadEncodeError, SubmissionRefusedError

#: What an input names an upload by.
REFERENCE = "$upload"

#: Seconds for which the link works that the client puts its bytes to.
LINK_SECONDS = 3600.0

#: Characters of a name.
NAME_LIMIT = 250

#: Bytes of one piece on the way into the store.
PIECE = 1 << 20

#: Uploads of one round of reaping.
REAPED = 100


@dataclass(frozen=True, slots=True)
class Upload:
    """
    Hold an upload.

    :param checked: whether its bytes were what was announced, and are in the store.
    """

    upload_id: UUID
    user: str
    pipeline: str
    sha256: bytes
    size: int
    media_type: str
    name: str | None
    expires_at: datetime
    checked: bool = False


class Uploads(Protocol):
    """Keep uploads. Each method is one commit."""

    def begin(
        self,
        user: str,
        pipeline: str,
        *,
        sha256: bytes,
        size: int,
        media_type: str,
        name: str | None,
        link_seconds: float,
    ) -> Upload | None:
        """Note one; ``None``: the user has too many that were never used."""

    def find(self, user: str, upload_id: UUID) -> Upload | None:
        """Give one of a user's own."""

    def checked(self, upload_id: UUID) -> None:
        """Note that its bytes are what was announced, and in the store."""

    def expired(self, *, limit: int) -> list[UUID]:
        """List those that were never used in time."""

    def forget(self, upload_id: UUID) -> None:
        """Forget one that was never used."""


class Staging(Protocol):
    """Hold what clients put, until it is checked."""

    def link(self, upload_id: UUID, *, expires: float) -> str:
        """Give an address to which the bytes are put, without a log-in."""

    def open(self, upload_id: UUID) -> BinaryIO:
        """
        Open what was put.

        :raises ArtifactMissingError: if nothing was.
        """

    def remove(self, upload_id: UUID) -> None:
        """Remove it, where it is there."""


class UploadDesk:
    """
    Take uploads.

    :param uploads: the ledger's.
    :param staging: where clients put their bytes.
    :param store: where they are kept.
    :param limit: bytes of one.
    """

    def __init__(self, uploads: Uploads, staging: Staging, store: ArtifactStore, *, limit: int) -> None:
        self._uploads = uploads
        self._staging = staging
        self._store = store
        self._limit = limit

    def begin(
        self, user: str, pipeline: str, *, sha256: bytes, size: int, media_type: str | None, name: str | None
    ) -> tuple[Upload, str] | None:
        """
        Announce an upload.

        :param user: whose it is: nobody else can use it.
        :param pipeline: the DAG whose input it becomes a part of.
        :return: the upload, and the address to put it to; ``None``: the user has too many that were never used.
        :raises SubmissionRefusedError: if it is too large, or its media type is none.
        """
        if size > self._limit:
            raise SubmissionRefusedError(f"an upload has at most {self._limit} bytes here, not {size}", "/size")
        try:
            media_type = checked_media_type(media_type or DEFAULT_MEDIA_TYPE)
        except PayloadEncodeError as error:
            raise SubmissionRefusedError(str(error), "/media_type") from error
        made = self._uploads.begin(
            user, pipeline, sha256=sha256, size=size, media_type=media_type, name=name, link_seconds=LINK_SECONDS
        )
        return None if made is None else (made, self._staging.link(made.upload_id, expires=LINK_SECONDS))

    def reference(self, upload: Upload) -> dict[str, Any]:
        """
        Give what the pipeline gets in the upload's place: an ``ArtifactRef`` as plain data.

        :param upload: checked or not.
        """
        uri = self._store.uri(upload.sha256)
        return ArtifactRef(upload.sha256.hex(), upload.size, upload.media_type, upload.name, uri).to_plain()

    def resolve(self, user: str, pipeline: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Upload]]:
        """
        Put references in the place of uploads.

        :param given: the input.
        :return: the input, and the uploads in it.
        :raises SubmissionRefusedError: if one is not there, or not the user's for this pipeline.
        """
        found: dict[UUID, Upload] = {}

        def one(name: object, where: str) -> dict[str, Any]:
            try:
                upload_id = UUID(name) if isinstance(name, str) else None
            except ValueError:
                upload_id = None
            upload = None if upload_id is None else self._uploads.find(user, upload_id)
            if upload is None or upload.pipeline != pipeline:
                raise SubmissionRefusedError("there is no such upload of yours for this pipeline", where)
            found[upload.upload_id] = upload
            return self.reference(upload)

        resolved = {name: _resolved(value, f"/input/{pointer(name)}", one) for name, value in given.items()}
        return resolved, list(found.values())

    def take_in(self, upload: Upload) -> None:
        """
        Check what was put, and keep it in the store; done twice it is done once.

        The bytes that are checked are the bytes that are kept: who still has the link can change what was put, and not
        what is used.

        :raises SubmissionRefusedError: if nothing was put, or something else than was announced.
        """
        if upload.checked:
            return
        try:
            stream = self._staging.open(upload.upload_id)
        except ArtifactMissingError as error:
            raise SubmissionRefusedError(f"nothing was put to upload {upload.upload_id} yet", "/input") from error
        with tempfile.TemporaryFile() as kept, stream:
            digest, size = hashlib.sha256(), 0
            while size <= upload.size and (piece := stream.read(PIECE)):
                digest.update(piece)
                size += len(piece)
                kept.write(piece)
            if size != upload.size or digest.digest() != upload.sha256:
                raise SubmissionRefusedError(
                    f"what was put to upload {upload.upload_id} is not what was announced: another size or SHA-256",
                    "/input",
                )
            kept.seek(0)
            self._store.put_file(kept, media_type=upload.media_type)
        failpoint("after_upload_kept")
        self._uploads.checked(upload.upload_id)
        self._staging.remove(upload.upload_id)

    def reap(self) -> int:
        """
        Remove what was put and never used in time.

        :return: how many there were.
        """
        expired = self._uploads.expired(limit=REAPED)
        for upload_id in expired:
            self._staging.remove(upload_id)
            self._uploads.forget(upload_id)
        return len(expired)


def _resolved(value: Any, where: str, one: Callable[[object, str], dict[str, Any]], depth: int = 0) -> Any:
    if depth > DEPTH:
        raise SubmissionRefusedError(f"at most {DEPTH} levels are taken", where)
    if isinstance(value, dict):
        if set(value) == {REFERENCE}:
            return one(value[REFERENCE], where)
        return {name: _resolved(each, f"{where}/{pointer(name)}", one, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, f"{where}/{number}", one, depth + 1) for number, each in enumerate(value)]
    return value
