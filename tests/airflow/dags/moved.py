"""A pipeline that goes on until it is told to end, with effects that can be taken back, mapped and plain tasks."""

# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow

#: Never set: to wait a moment.
MOMENT = threading.Event()


def note(folder: str, name: str, line: str) -> None:
    """Append a line to a file."""
    with (Path(folder) / name).open("a") as file:
        file.write(f"{line}\n")


def took(folder: str, who: str, number: int) -> int:
    """Take a moment, and note it."""
    MOMENT.wait(0.2)
    note(folder, f"ticks-{who}", str(number))
    return number


def book(folder: str, what: str) -> str:
    """Be an effect."""
    note(folder, "booked", what)
    return what


def unbook(intent, result) -> None:
    """Take it back."""
    note(intent.request["folder"], "unbooked", result)


def tick(flow: Flow, folder: str, who: str) -> int:
    """Go on until the test says so."""
    number = 0
    while not (Path(folder) / "go").exists():
        flow.step("tick", took, folder, who, number)
        number += 1
    return number


@dag(
    schedule=None,
    params={"folder": Param(type="string")},
    default_args={"retries": 2, "retry_delay": dt.timedelta(seconds=1)},
)
def moved():
    @task.durable(compensate_on_failure=True)
    def work(flow: Flow, params=None):
        for what in ("a", "b"):
            flow.effect("book", book, params["folder"], what, key=f"{params['folder']}/{what}", compensate=unbook)
        return tick(flow, params["folder"], "work")

    @task.durable
    def side(number, flow: Flow, params=None):
        return tick(flow, params["folder"], f"side{number}")

    @task
    def plain(params=None):
        note(params["folder"], "plain", "began")
        while not (Path(params["folder"]) / "go").exists():
            MOMENT.wait(0.2)

    @task
    def second(params=None):
        note(params["folder"], "second", "ran")

    @task
    def after(done, params=None):
        note(params["folder"], "after", "ran")
        return "done"

    [side.expand(number=[7]), plain() >> second()] >> after(work())


moved()
