"""Small files that only their owner may read, replaced in one step, and the lock of a folder."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from airflow_aiflow.exceptions import StackError


def write_private(path: Path, text: str) -> None:
    """Replace a file by one with mode 0600; a crash leaves the old or the new one, never half of one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a private file by a JSON document."""
    write_private(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object.

    :return: None where the file does not exist.
    :raises StackError: the file is there but can't be read, or is no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StackError(
            f"{path} can't be read ({error.strerror}): give another --home, or the right to read it"
        ) from error
    except ValueError as error:
        raise StackError(f"{path} is damaged ({error}): delete the folder {path.parent} to start anew") from error
    if not isinstance(value, dict):
        raise StackError(f"{path} is damaged (no JSON object): delete the folder {path.parent} to start anew")
    return value


class FolderLock:
    """The right to run servers in a folder; the kernel frees it when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Tell whether this process holds it."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock.

        :raises StackError: another process holds it; its pid is in the message.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StackError(f"{self._path.parent} is in use by process {holder}: stop it first") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; again is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
