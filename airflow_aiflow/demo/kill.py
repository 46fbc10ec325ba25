"""Kill a task as a power cut would: the task's process and all below it, by SIGKILL, without a warning."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import psutil

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.runtime.process import is_dead

#: What the DAG's ``retries`` allow: each kill takes one.
MOST_KILLS = 10


def read_kill_points(text: str) -> tuple[float, ...]:
    """
    Read the points at which to kill.

    :param text: rising percentages of the pages, such as ``5,30,60,90``; empty: no kill at all.
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
    if len(points) > MOST_KILLS:
        raise AiflowConfigError(f"--kill-at: {len(points)} kills; the DAG's retries allow {MOST_KILLS}")
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
    if is_dead(owner) is not False:
        return 0
    try:
        task = psutil.Process(owner.pid)
        below = task.children(recursive=True)
        # The task first, so that it starts nothing new.
        task.kill()
    except psutil.NoSuchProcess:
        return 0
    for process in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return 1 + len(below)
