"""Run many jobs as forked processes, some at once, each with a folder of its own."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.process import die_with_parent

J = TypeVar("J")

#: Jobs at once for each core: most of their time is spent waiting for processes that start, end or give way.
JOBS_PER_CORE = 6

#: Above every descriptor that the parent may have open.
MOST_OPEN = 4096

#: Seconds after which a job is given up; reached only where something hangs.
JOB_SECONDS = 240.0


def leave_nothing_to_collect() -> None:
    """Before a fork: a child that collects the parent's garbage would close descriptors that are its own by then."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Ended(Generic[J]):
    """
    Hold a job's end.

    :param value: what it gave, plain data; a text that begins with ``!`` is why it gave nothing.
    """

    job: J
    folder: Path
    value: Any


@dataclass
class Forks(Generic[J]):
    """
    Run jobs.

    :param work: called in the job's process with the job and its folder; gives plain data.
    :param folder: for the folders of all jobs.
    :param width: how many at once.
    :param meanwhile: called again and again while jobs run.
    """

    work: Callable[[J, Path], Any]
    folder: Path
    width: int = JOBS_PER_CORE * (os.cpu_count() or 1)
    meanwhile: Callable[[], None] = lambda: None
    _at_work: dict[int, tuple[J, Path, float]] = field(default_factory=dict)

    def run(self, jobs: Iterable[J]) -> list[Ended[J]]:
        """
        Run jobs to their ends.

        :param jobs: in the order in which they start.
        """
        ended: list[Ended[J]] = []
        try:
            for number, job in enumerate(jobs):
                while len(self._at_work) >= self.width:
                    ended += self._ended()
                self._start(number, job)
            while self._at_work:
                ended += self._ended()
        finally:
            for pid in self._at_work:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return ended

    def _start(self, number: int, job: J) -> None:
        folder = self.folder / str(number)
        folder.mkdir(parents=True)
        leave_nothing_to_collect()
        pid = os.fork()
        if pid == 0:
            self._be_job(job, folder)
        self._at_work[pid] = (job, folder, time.monotonic())

    def _be_job(self, job: J, folder: Path) -> NoReturn:
        try:
            die_with_parent()
            # What the parent has open is its own: a lock that a child kept open could never be taken again.
            os.closerange(3, MOST_OPEN)
            try:
                value = self.work(job, folder)
            except BaseException as error:
                traceback.print_exc(file=(folder / "trouble").open("w"))
                value = f"!{type(error).__name__}: {error}"
            (folder / "value").write_text(json.dumps(value))
        finally:
            os._exit(0)

    def _ended(self) -> list[Ended[J]]:
        """Wait a moment; give those that have ended."""
        self.meanwhile()
        ended = []
        for pid, (job, folder, began) in list(self._at_work.items()):
            gone, _ = os.waitpid(pid, os.WNOHANG)
            if not gone and time.monotonic() - began > JOB_SECONDS:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                gone = pid
            if gone:
                del self._at_work[pid]
                value = folder / "value"
                ended.append(Ended(job, folder, json.loads(value.read_text()) if value.exists() else "!no end"))
        if not ended:
            SystemClock().wait(0.01)
        return ended
