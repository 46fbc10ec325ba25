"""
Tasks that tests kill, park and supersede. Each counts what it does in a file outside Airflow: one line an execution.

The folder comes with the run's ``conf``, so that every run counts on its own.
"""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
import threading
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow
from airflow_aiflow.exceptions import AttemptParked

#: Never set: to wait a moment in a loop.
MOMENT = threading.Event()

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SOON = dt.timedelta(seconds=1)


def note(folder: str, line: str) -> None:
    """Append one line, whole, whoever else writes."""
    handle = os.open(Path(folder) / "count.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def counted(number: int, folder: str, hold_at: int) -> int:
    """Be one step; where it is held, wait for the test's file."""
    note(folder, f"step {number} {os.getpid()} {os.getppid()}")
    while number == hold_at and not (Path(folder) / "go").exists():
        MOMENT.wait(0.05)
    return number * number


def tick(number: int) -> int:
    """Take a moment."""
    MOMENT.wait(0.05)
    return number


def deadly(ctx: object, folder: str) -> str:
    """Be an effect whose process dies after it acted."""
    note(folder, f"acted {os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


WITH_FOLDER = {"folder": Param(type="string"), "hold_at": Param(-1, type="integer")}


@dag(schedule=None, start_date=START, params=WITH_FOLDER, default_args={"retry_delay": SOON})
def ten_steps():
    @task.durable(retries=2)
    def work(flow: Flow, params=None):
        folder, hold_at = params["folder"], params["hold_at"]
        note(folder, f"attempt {flow.attempt} {flow.generation} {flow.resumed}")
        return [flow.step("square", counted, number, folder, hold_at) for number in range(10)]

    @task
    def read(squares: list[int], params=None):
        note(params["folder"], f"read {squares}")

    read(work())


@dag(schedule=None, start_date=START, params=WITH_FOLDER)
def parks():
    @task.durable(retries=0)
    def work(flow: Flow, params=None):
        folder = params["folder"]
        note(folder, f"attempt {flow.attempt} {flow.generation}")
        flow.step("square", counted, 3, folder, -1)
        if not (Path(folder) / "go").exists():
            (Path(folder) / "go").touch()
            raise AttemptParked(1, "waiting for a file")

    work()


@dag(schedule=None, start_date=START, params={**WITH_FOLDER, "inside": Param(True, type="boolean")})
def superseded():
    @task.durable(retries=0, lease=3)
    def work(flow: Flow, params=None):
        folder = params["folder"]
        flow.step("square", counted, 0, folder, 0)
        for number in itertools.count():
            if params["inside"]:
                flow.step("tick", tick, number)
            else:
                tick(number)

    work()


@dag(schedule=None, start_date=START, params=WITH_FOLDER, default_args={"retry_delay": SOON})
def doubtful():
    @task.effect(key="pay/{{ run_id }}", on_in_doubt="hold", retries=3, timeout=1)
    def pay(ctx, folder):
        return deadly(ctx, folder)

    pay("{{ params.folder }}")


@dag(schedule=None, start_date=START, params=WITH_FOLDER)
def large():
    @task.durable
    def pages(flow: Flow):
        return [f"page {number} " + "x" * 5000 for number in range(5)]

    @task
    def read(pages: list[str], templated: str, params=None):
        note(params["folder"], f"read {type(pages).__name__} {len(pages)} {templated}")

    @task.durable(map_index_template="{{ page[:6] }}")
    def one(page: str, flow: Flow, params=None):
        note(params["folder"], f"one {page[:6]}")

    made = pages()
    read(made, "{{ ti.xcom_pull(task_ids='pages')[4][:6] }}")
    one.partial().expand(page=made)


def charge(ctx, folder: str) -> str:
    """Charge."""
    note(folder, f"charged {ctx.idempotency_key}")
    return "charge 1"


def refund(intent, result: str) -> None:
    """Give back what was charged."""
    note(intent.request["folder"], f"refunded {result}")


@dag(schedule=None, start_date=START, params=WITH_FOLDER, default_args={"retry_delay": SOON})
def takes_back():
    @task.durable(retries=1, compensate_on_failure=True)
    def order(flow: Flow, params=None):
        folder = params["folder"]
        flow.effect("charge", charge, folder, key=f"order/{folder}", compensate=refund)
        if not (Path(folder) / "go").exists():
            raise ValueError("there is none left")

    order()


ten_steps()
parks()
takes_back()
superseded()
doubtful()
large()
