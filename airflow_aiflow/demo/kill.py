"""
Kill a task as a power cut would, by SIGKILL, without a warning: its process and all below it, or the whole worker.

Who kills the task's process alone leaves its supervisor, which tells Airflow at once. With the supervisor gone as well
nobody tells anybody.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Literal

import psutil

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.runtime.process import is_dead

#: What is killed: the task's process, or its supervisor with it.
Victim = Literal["task", "worker"]

#: What the DAG's ``retries`` allow: each kill takes one.
MOST_KILLS = 10

#: What recovery allows by its default, ``max_recoveries``.
MOST_WORKERS = 5


def read_kill_points(text: str, victim: Victim = "task") -> tuple[float, ...]:
    """
    Read the points at which to kill.

    :param text: rising percentages of the pages, such as ``5,30,60,90``; empty: no kill at all.
    :param victim: what is killed.
    :raises AiflowConfigError: naming what is wrong.
    """
    points: list[float] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        try:
            point = float(word.removesuffix("%"))
        except ValueError:
            raise AiflowConfigError(f"--kill-at: {word!r} is no percentage; write 60 or 5,30,60,90") from None
        if not 0 <= point < 100:
            raise AiflowConfigError(f"--kill-at: {word} is not from 0 to below 100 (percent of the pages)")
        if points and point <= points[-1]:
            raise AiflowConfigError(f"--kill-at: {word} comes after {points[-1]:g}; write rising percentages")
        points.append(point)
    if victim == "task" and len(points) > MOST_KILLS:
        raise AiflowConfigError(f"--kill-at: {len(points)} kills; the DAG's retries allow {MOST_KILLS}")
    if victim == "worker" and len(points) > MOST_WORKERS:
        raise AiflowConfigError(f"--kill-at: {len(points)} kills; recovery brings a run back {MOST_WORKERS} times")
    return tuple(points)


def pages_at(points: Sequence[float], pages: int) -> list[int]:
    """
    Turn percentages into numbers of recorded pages; at least one page is left to do.

    :param points: percentages.
    :param pages: how many there are.
    """
    return [min(math.ceil(pages * point / 100), pages - 1) for point in points]


def kill_tree(owner: Owner) -> int:
    """
    Kill a task's process and everything below it; never a stranger that was given the same pid.

    :param owner: as the ledger names it.
    :return: how many processes were hit; 0 where the task had ended already.
    """
    return _kill(owner, with_supervisor=False)


def kill_worker(owner: Owner) -> int:
    """
    Kill a task's supervisor, its process and everything below it: Airflow hears nothing.

    :param owner: as the ledger names it.
    :return: how many processes were hit; 0 where the task had ended already.
    """
    return _kill(owner, with_supervisor=True)


def _kill(owner: Owner, *, with_supervisor: bool) -> int:
    if is_dead(owner) is not False:
        return 0
    try:
        task = psutil.Process(owner.pid)
        below = task.children(recursive=True)
        # Who could tell goes first, then the task, so that it starts nothing new.
        first = [task.parent(), task] if with_supervisor else [task]
        for process in filter(None, first):
            process.kill()
    except psutil.NoSuchProcess:
        return 0
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return len(first) + len(below)
