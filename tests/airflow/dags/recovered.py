"""
Tasks without retries whose workers tests kill: recovery alone brings their runs home.

Each step writes a line, so that a step that ran twice is seen.
"""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import os
import threading
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow

#: Never set: to wait a moment in a loop.
MOMENT = threading.Event()

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def note(folder: str, line: str) -> None:
    """Append one line, whole, whoever else writes."""
    handle = os.open(Path(folder) / "count.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def counted(number: int, folder: str) -> int:
    """Be one step; the last one waits for the test's file."""
    note(folder, f"step {number} {os.getpid()} {os.getppid()}")
    while number == 3 and not (Path(folder) / "go").exists():
        MOMENT.wait(0.05)
    return number * number


@dag(schedule=None, start_date=START, params={"folder": Param(type="string")})
def recovered():
    @task.durable(retries=0)
    def work(flow: Flow, params=None):
        folder = params["folder"]
        note(folder, f"attempt {flow.attempt} {flow.generation}")
        return [flow.step("square", counted, number, folder) for number in range(4)]

    @task
    def read(squares: list[int], params=None):
        note(params["folder"], f"read {squares}")

    read(work())


recovered()
