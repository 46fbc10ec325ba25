"""The stack of one demo: in a folder of its own, made anew, gone with the demo."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from airflow_aiflow.demo.home import claimed
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.local.stack import Stack, StackPlan
from airflow_aiflow.storage.artifacts_connection import PlainConnection, artifact_store

if TYPE_CHECKING:
    from airflow_aiflow.storage.s3 import S3ArtifactStore

#: Seconds between two looks at the parts of a stack that is kept.
WATCH_PARTS = 0.5

O = TypeVar("O")  # noqa: E741  # what is counted


class OwnStack(ABC, Generic[O]):
    """
    Own the stack of one demo; used by ``with``.

    :param home: folder of the stack; emptied.
    :param screen: where a person reads along.
    """

    def __init__(self, home: Path, screen: Screen) -> None:
        self._home, self._screen = home, screen
        self._stack: Stack | None = None
        self._closing = contextlib.ExitStack()

    @abstractmethod
    def _plan(self) -> StackPlan:
        """Empty the folder, put the DAG into it, and say what is about to be read."""

    @abstractmethod
    def run(self) -> O:
        """Run the demo, and count."""

    def __enter__(self) -> Self:
        """Start the stack."""
        self._closing.enter_context(claimed(self._home))
        try:
            plan, say = self._plan(), self._screen.say
            say(f"starting PostgreSQL, S3, Airflow and the stand-ins in {self._home}")
            stack = Stack(plan)
            stack.start(lambda name, seconds: say(f"  {name:<12} ready after {seconds:4.1f} s"))
        except BaseException:
            self._closing.close()
            raise
        self._stack = stack
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        with self._closing:
            if stack is not None:
                stack.stop()

    @property
    def stack(self) -> Stack:
        """Give the running stack."""
        assert self._stack is not None, "use the demo by `with`"
        return self._stack

    def stay(self) -> None:
        """Keep the stack running until a signal comes."""
        while True:
            time.sleep(WATCH_PARTS)
            self.stack.mend()

    @contextlib.contextmanager
    def _artifacts(self) -> Iterator[S3ArtifactStore]:
        """Open the stack's artifact store."""
        connection = dict(self.stack.connections()["aiflow_artifacts"])
        extra = connection.pop("extra")
        store = artifact_store(PlainConnection("aiflow_artifacts", **connection, extra_dejson=extra))
        try:
            yield store
        finally:
            store.close()
