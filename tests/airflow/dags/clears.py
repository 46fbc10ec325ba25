"""
Tasks that tests clear in every way there is. Each counts its steps and effects in a file outside Airflow.

The folder, and where to hold or to fail, come with the run's ``conf``.
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

PARAMS = {
    "folder": Param(type="string"),
    "hold": Param(False, type="boolean"),
    "fail": Param([], type="array"),
}
OPTIONS = {"schedule": None, "start_date": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "params": PARAMS}


def note(folder: str, line: str) -> None:
    """Append one line, whole, whoever else writes."""
    handle = os.open(Path(folder) / "count.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def read(task_id: str, folder: str) -> str:
    """Be a step that is paid for."""
    note(folder, f"step {task_id}")
    return task_id


def send(task_id: str, folder: str) -> str:
    """Be an effect."""
    note(folder, f"effect {task_id}")
    return "sent"


def hold(folder: str) -> None:
    """Be at work until the test says go, or the process is ended."""
    note(folder, f"held {os.getpid()}")
    while not (Path(folder) / "go").exists():
        MOMENT.wait(0.05)


def work_once(flow: Flow, task_id: str, params: dict) -> str:
    """Do one step and one effect, then fail or be held where the run says so."""
    folder = params["folder"]
    note(folder, f"attempt {task_id} {flow.attempt} {flow.generation}")
    value = flow.step("read", read, task_id, folder)
    flow.effect("mail", send, task_id, folder, key=f"{folder}/{task_id}")
    if params["hold"] and flow.attempt == 1:
        hold(folder)
    if flow.attempt in params["fail"]:
        raise ValueError("the code's own error")
    return value


@dag(**OPTIONS, default_args={"retries": 1, "retry_delay": dt.timedelta(seconds=1)})
def cleared():
    @task.durable
    def work(flow: Flow, params=None):
        return work_once(flow, "work", params)

    work()


@dag(**OPTIONS)
def cleared_chain():
    @task.durable
    def top(flow: Flow, params=None):
        return work_once(flow, "top", params)

    @task.durable
    def below(flow: Flow, above: str, params=None):
        return work_once(flow, "below", params)

    below(top())


@dag(**OPTIONS, default_args={"on_clear": "auto"})
def cleared_list():
    @task
    def listed(params=None):
        return (Path(params["folder"]) / "list.txt").read_text().split()

    @task.durable
    def one(flow: Flow, item: str, params=None):
        note(params["folder"], f"attempt one {flow.attempt} {flow.generation}")
        return flow.step("read", read, item, params["folder"])

    one.expand(item=listed())


cleared()
cleared_chain()
cleared_list()
