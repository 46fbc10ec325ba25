"""What every server of the stack is: one child process that keeps its state in one folder, locked while it runs."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.private_file import FolderLock


class FolderServer(ABC):
    """
    Run a server out of a folder.

    :param folder: keeps its state; made when it starts.
    :param log: the log's file name in it.
    :param port: to listen on; ``None``: a free one.
    :param owned: whether the server ends with this process, however that ends.
    """

    #: What messages call it.
    what: ClassVar[str]

    def __init__(self, folder: Path, log: str, port: int | None, *, owned: bool) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / log
        self._wanted_port = port
        self._owned = owned
        self._lock = FolderLock(self.folder / "lock")
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def stop(self) -> None:
        """End the server; harmless where it does not run."""

    @property
    def port(self) -> int:
        """Give the TCP port of the started server."""
        if self._port is None:
            raise StackError(f"{self.what} in {self.folder} has not been started")
        return self._port

    @property
    def pid(self) -> int:
        """Give the server's pid."""
        if self._process is None:
            raise StackError(f"{self.what} in {self.folder} is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class StartedFolderServer(FolderServer):
    """Be a server that needs nothing to start, so that ``with`` starts it."""

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it answers."""

    def __enter__(self) -> Self:
        self.start()
        return self
