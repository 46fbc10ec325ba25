"""Name a run and its tasks on a command line: ``DAG_ID/RUN_ID``, ``TASK_ID`` and ``TASK_ID[MAP_INDEX]``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import NamedTuple

from airflow_aiflow.durable.identity import UNMAPPED


class RunAddress(NamedTuple):
    """Name a run."""

    dag_id: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.run_id}"


class TaskAddress(NamedTuple):
    """Name a task of a run, or one map index of it; ``None``: all of them."""

    task_id: str
    map_index: int | None = None

    def __str__(self) -> str:
        return self.task_id if self.map_index is None else f"{self.task_id}[{self.map_index}]"

    def matches(self, task_id: str, map_index: int) -> bool:
        """
        Say whether a task instance is meant.

        :param task_id: its task.
        :param map_index: its map index.
        """
        return self.task_id == task_id and self.map_index in (None, map_index)


def read_run(text: str) -> RunAddress:
    """
    Read ``DAG_ID/RUN_ID``. A DAG's id holds no slash, so that the first one ends it; a run's may hold any character.

    :param text: of the command line.
    :raises argparse.ArgumentTypeError: if it is none.
    """
    dag_id, slash, run_id = text.partition("/")
    if not dag_id or not slash or not run_id:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no run: write DAG_ID/RUN_ID, such as invoices/scheduled__2026-11-29T18:00:00+00:00"
        )
    return RunAddress(dag_id, run_id)


def read_dag_or_run(text: str) -> RunAddress | str:
    """
    Read ``DAG_ID`` or ``DAG_ID/RUN_ID``.

    :param text: of the command line.
    :raises argparse.ArgumentTypeError: if it is neither.
    """
    return read_run(text) if "/" in text or not text else text


def read_task(text: str) -> TaskAddress:
    """
    Read ``TASK_ID`` or ``TASK_ID[MAP_INDEX]``.

    :param text: of the command line.
    :raises argparse.ArgumentTypeError: if it is none.
    """
    found = re.fullmatch(r"([^\[\]]+)(?:\[(\d+)\])?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} names no task: write TASK_ID or TASK_ID[MAP_INDEX]")
    return TaskAddress(found[1], None if found[2] is None else int(found[2]))


def task_names(instances: Iterable[tuple[str, int]]) -> str:
    """
    Name task instances, map indexes that follow each other in one.

    :param instances: (task id, map index) in any order.
    """
    indexes: dict[str, set[int]] = {}
    for task_id, map_index in instances:
        indexes.setdefault(task_id, set()).add(map_index)
    return ", ".join(_named(task_id, sorted(found)) for task_id, found in indexes.items())


def _named(task_id: str, indexes: list[int]) -> str:
    if indexes == [UNMAPPED]:
        return task_id
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return f"{task_id}[{', '.join(str(a) if a == b else f'{a}..{b}' for a, b in runs)}]"
