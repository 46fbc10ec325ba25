"""A task without retries whose process dies once: a person requeues it."""

# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import os
import signal
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow


def note(folder: str, line: str) -> None:
    """Append one line."""
    with (Path(folder) / "count.txt").open("a") as file:
        file.write(f"{line}\n")


@dag(schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), params={"folder": Param(type="string")})
def requeued():
    # A short lease: until it lapses the attempt may be at work, as far as anybody on another machine knows.
    @task.durable(lease=3, retries=0)
    def work(folder: str, flow: Flow) -> str:
        flow.step("before", note, folder, "before")
        if flow.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        flow.step("after", note, folder, "after")
        return "done"

    work("{{ params.folder }}")


requeued()
