"""A pipeline that takes its time, so that its clients can be cut off meanwhile."""

# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

from airflow.sdk import Param, dag, result, task

from airflow_aiflow import Flow

#: Never set: to wait a moment.
MOMENT = threading.Event()


def took(number: int) -> int:
    """Take a moment."""
    MOMENT.wait(0.1)
    return number


@dag(
    schedule=None,
    params={"folder": Param(type="string")},
    default_args={"retry_delay": dt.timedelta(seconds=1)},
)
def ticks():
    @task.durable(retries=3)
    def run(flow: Flow, params=None):
        number = 0
        while not (Path(params["folder"]) / "go").exists():
            flow.step("tick", took, number)
            number += 1
        return "done"

    run()


ticks()


@dag(schedule=None)
def two_ends():
    """Have two leaves, one of which gives the result."""

    @task
    def other():
        return "not this"

    @result
    @task
    def wanted():
        return "this"

    other()
    wanted()


two_ends()
