"""
Open what a path names: ``s3://bucket/...``, ``s3://connection@bucket/...``, ``file:///...`` or an absolute path.

Without a connection in the path it is the artifact store's: its server and keys, and the bucket that the path names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_aiflow.config import flow_settings
from airflow_aiflow.exceptions import ArtifactMissingError, FlowOptionError, ItemFileError
from airflow_aiflow.runtime.map_files import FileItems, ItemFile, kind_of

if TYPE_CHECKING:
    from airflow_aiflow.durable.folder import Folder

FORMS = "s3://BUCKET/PATH, s3://CONNECTION@BUCKET/PATH, or the absolute path of a disk that all workers share"


def open_folder(path: str, option: str) -> Folder:
    """
    Open a folder.

    :param path: with or without a slash at its end.
    :param option: that it is given by, for messages.
    :raises FlowOptionError: if it is no path that can be opened.
    :raises AiflowConfigError: if its connection is missing, or a field of it is missing or wrong.
    """
    if path.startswith("s3://"):
        place, _, prefix = path.removeprefix("s3://").partition("/")
        conn_id, _, bucket = place.rpartition("@")  # a name below the bucket may hold an @ as well
        if bucket:
            return _s3(conn_id or flow_settings().artifacts_conn_id, bucket, f"{prefix.strip('/')}/".lstrip("/"))
    local = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
    if local.startswith("/"):
        from airflow_aiflow.storage.local_folder import LocalFolder

        return LocalFolder(Path(local))
    raise FlowOptionError(f"{option} must be {FORMS}; got {path!r}")


def _s3(conn_id: str, bucket: str, prefix: str) -> Folder:
    from airflow_aiflow.hooks.aiflow import existing_connection
    from airflow_aiflow.storage.artifacts_connection import PlainConnection, settings_from_connection
    from airflow_aiflow.storage.s3_folder import S3Folder

    found = existing_connection(conn_id, "the object store", "minio://KEY:SECRET@HOST:9000/BUCKET")
    extra = {name: value for name, value in (found.extra_dejson or {}).items() if name not in ("bucket", "prefix")}
    # The bucket is the path's, whatever the connection says.
    plain = PlainConnection(
        found.conn_id,
        found.conn_type or "",
        host=found.host,
        schema=bucket,
        login=found.login,
        password=found.password,
        port=found.port,
        extra_dejson={**extra, "bucket": bucket},
    )
    return S3Folder(settings_from_connection(plain), bucket, prefix)


@contextmanager
def opened(folder: Folder) -> Iterator[Folder]:
    """Give a folder, and its connections back."""
    try:
        yield folder
    finally:
        folder.close()


def read_path(path: str, option: str) -> Iterator[Any]:
    """
    Read the items of a file, or of several of one kind in the order of their names.

    :param path: of the file; of a folder, with a slash at its end; or with ``*`` in its last part.
    :param option: that it is given by, for messages.
    :raises FlowOptionError: if it is of a kind that holds no items, or they are of several kinds.
    :raises ArtifactMissingError: if it is not there, or no file is.
    :raises ItemFileError: if it can't be read, or is another one in the middle of it.
    """
    head, _, name = path.rpartition("/")
    if path.startswith("file://"):
        name = unquote(name)
    several = not name or "*" in name
    if not several:
        _kind(name, path, option)
    with opened(open_folder(head, option)) as folder:

        def beside(said: dict[str, Any]) -> ItemFile:
            named = str(said.get("name") or "")
            inner = kind_of(named)
            if inner is None or "/" in named:
                raise ItemFileError(f"{path} names the file {named!r}, which is none of a batch's results")
            return ItemFile(folder.uri(named), inner, lambda: folder.open(named))

        for each in _matching(folder, name, path, option) if several else [name]:
            shown = folder.uri(each) if several else path
            kind = _kind(each, shown, option)
            yield from FileItems(ItemFile(shown, kind, partial(folder.open, each), beside=beside))


def _kind(name: str, path: str, option: str) -> str:
    kind = kind_of(name)
    if kind is None:
        raise FlowOptionError(
            f"{option} names files of JSON lines (*.jsonl), CSV (*.csv) or Parquet (*.parquet), or a manifest of "
            f"results (*manifest.json); got {path!r}"
        )
    return kind


def _matching(folder: Folder, name: str, path: str, option: str) -> list[str]:
    """Name the files of a folder that are meant: all of one kind, for a file that is left out is data that is lost."""
    pattern = re.compile(".*".join(map(re.escape, (name or "*").split("*"))), re.DOTALL)
    # What begins so is hidden, or another program's note about the folder.
    found = sorted(each for each in folder.names() if pattern.fullmatch(each) and not each.startswith((".", "_")))
    if not found:
        raise ArtifactMissingError(f"{option}: there is no file {path}")
    kinds = {_kind(each, folder.uri(each), option): each for each in found}
    if len(kinds) > 1:
        raise FlowOptionError(
            f"{option}: {path} holds files of several kinds ({', '.join(sorted(kinds.values()))}): name those that are "
            "meant, such as .../*.jsonl, or the manifest of a batch's results alone"
        )
    return found
