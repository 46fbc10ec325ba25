"""Start and end child processes of the embedded stack.

A child gets its own session, so that Ctrl-C in a terminal reaches only the owner, which stops its children in order.
A process is always named by pid *and* start time: a pid alone may belong to a stranger by the time it is signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from airflow_aiflow.local import trampoline

#: Start times are read from the kernel's clock ticks; two readings of one process differ by less than this (seconds).
START_TIME_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class RunAs:
    """Who a child runs as: the present user, a user namespace of it, or another user."""

    namespace: bool = False
    uid: int | None = None
    gid: int | None = None

    def options(self) -> list[str]:
        """Give the trampoline's options."""
        if self.namespace:
            return ["--user-namespace"]
        if self.uid is not None:
            return ["--uid", str(self.uid), "--gid", str(self.gid)]
        return []


SELF = RunAs()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process that can be told from a later one with the same pid."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Read the identity of a pid that lives now.

        :return: None where there is no such process (a zombie counts as gone).
        """
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.NoSuchProcess:
            return None

    def alive(self) -> bool:
        """Tell whether this very process still runs."""
        now = ProcessIdentity.of(self.pid)
        return now is not None and abs(now.started - self.started) < START_TIME_TOLERANCE


_spawner_lock = threading.Lock()
_spawner: ThreadPoolExecutor | None = None
_spawner_pid = 0


def _spawner_thread() -> ThreadPoolExecutor:
    """Give the one thread that forks children.

    The parent-death signal fires when the *thread* that forked the child ends, so children must not be forked from the
    short-lived threads that start the parts of the stack side by side.
    """
    global _spawner, _spawner_pid
    with _spawner_lock:
        if _spawner is None or _spawner_pid != os.getpid():
            _spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aiflow-spawn")
            _spawner_pid = os.getpid()
        return _spawner


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    run_as: RunAs = SELF,
    owned: bool = True,
    death_signal: signal.Signals = signal.SIGKILL,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, its output appended to a log.

    :param argv: program and arguments.
    :param log: file that takes standard output and error.
    :param env: the whole environment; None passes on the present one.
    :param cwd: working directory.
    :param run_as: the user to run as.
    :param owned: end the program when this process ends, however it ends.
    :param death_signal: what the program gets then.
    :param stdin: its standard input, as `subprocess` takes it.
    """
    command = [sys.executable, "-I", "-S", trampoline.__file__, *run_as.options()]
    if owned:
        command += ["--owner", str(os.getpid()), "--death-signal", str(int(death_signal))]
    command += ["--", *argv]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    return _spawner_thread().submit(start).result()


def run(
    argv: Sequence[str], *, run_as: RunAs = SELF, cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and keep its output.

    :param argv: program and arguments.
    :param run_as: the user to run as.
    :param cwd: working directory.
    :param timeout: seconds.
    """
    command = [sys.executable, "-I", "-S", trampoline.__file__, *run_as.options(), "--", *argv]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd, timeout=timeout, check=False
    )


def stop(process: subprocess.Popen[bytes], *, ask: signal.Signals, grace: float) -> None:
    """End a child and what is left of its process group.

    :param process: the child, started by :func:`spawn`.
    :param ask: the signal that asks it to end.
    :param grace: seconds until SIGKILL.
    """
    if process.poll() is None:
        process.send_signal(ask)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    kill_group(process.pid)
    process.wait()


def kill_group(leader: int) -> None:
    """Send SIGKILL to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_stranger(identity: ProcessIdentity, *, ask: signal.Signals, grace: float) -> None:
    """End a process that is not our child, such as one left by an owner that crashed.

    :param identity: the process; nothing happens where it is gone.
    :param ask: the signal that asks it to end.
    :param grace: seconds until SIGKILL.
    """
    if not identity.alive():
        return
    try:
        process = psutil.Process(identity.pid)
        process.send_signal(ask)
        try:
            process.wait(grace)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(grace)
    except psutil.NoSuchProcess:
        pass


def tail(log: Path, lines: int = 15) -> str:
    """Give the last lines of a log, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"(log {log} can't be read: {error})"
    return "\n".join(text.splitlines()[-lines:])
