"""
Tasks that ask a person. Each counts what it does in a file outside Airflow: one line an execution.

The folder comes with the run's ``conf``, so that every run counts on its own.
"""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import os
import signal
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SOON = dt.timedelta(seconds=1)
WITH_FOLDER = {"folder": Param(type="string")}


def note(folder: str, line: str) -> None:
    """Append one line, whole, whoever else writes."""
    handle = os.open(Path(folder) / "count.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def deadly_once(folder: str) -> str:
    """Be an effect whose process dies after it acted, the first time."""
    first = not (Path(folder) / "count.txt").exists()
    note(folder, f"acted {os.getpid()}")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return "by the target"


@dag(schedule=None, start_date=START, params=WITH_FOLDER, default_args={"retry_delay": SOON})
def in_doubt():
    @task.effect(key="pay/{{ run_id }}", retries=3, timeout=1)
    def pay(folder):
        return deadly_once(folder)

    pay("{{ params.folder }}")


@dag(schedule=None, start_date=START, params=WITH_FOLDER)
def two_questions():
    @task.durable(retries=0)
    def work(flow: Flow, params=None):
        note(params["folder"], "began")
        first = flow.ask("colour", "Which colour?", options=("Red", "Blue"))
        second = flow.ask("size", "Which size?", options=("Large", "Small"))
        note(params["folder"], f"answers {first.option} by {first.by}, {second.option} by {second.by}")

    work()


in_doubt()
two_questions()
