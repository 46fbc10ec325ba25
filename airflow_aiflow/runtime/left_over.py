"""
Find and end the processes that a dead task left behind.

A subprocess outlives a task that was killed, and would go on beside the next try. Standard library only: see the guard.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from airflow_aiflow.runtime.living import look

#: What subprocesses of the task inherit in their environment; the value is the attempt's alone.
MARKER = "AIFLOW_GUARD"

#: Seconds that left-over processes get to vanish; SIGKILL needs no cooperation.
KILL_SECONDS = 5.0


def left_over(token: str, task: int, *, leads: bool) -> Iterator[tuple[int, str]]:
    """
    Find the processes that a dead task left behind.

    Only those that carry its marker or, where it led a process group of its own, belong to that group: a child that
    was forked without a new program shows no environment of its own.

    Not covered: a child that got another environment and a session of its own.

    :param token: the marker's value.
    :param task: the task's pid.
    :param leads: whether the task led its process group.
    :return: pid and name of each.
    """
    # While anybody is in the group, nobody else gets its number as a pid: a process with that pid is another's leader.
    group = task if leads and look(task) is None else None
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in (task, os.getpid()):
            continue
        pid = int(entry)
        seen = look(pid)
        if seen is not None and (seen.group == group or is_marked(pid, token)):
            yield pid, seen.name


def is_marked(pid: int, token: str) -> bool:
    """
    Say whether a process has the marker in its environment. Others' environments can't be read, and are not ours.

    :param pid: the process.
    :param token: the marker's value.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARKER}={token}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def end_left_over(token: str, task: int, *, leads: bool) -> dict[int, str]:
    """
    End what a dead task left behind, and what that starts meanwhile.

    :param token: the marker's value.
    :param task: the task's pid.
    :param leads: whether the task led its process group.
    :return: pid and name of each.
    """
    ended: dict[int, str] = {}
    deadline = time.monotonic() + KILL_SECONDS
    while found := dict(left_over(token, task, leads=leads)):
        ended |= found
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            break
        time.sleep(0.02)
    return ended
