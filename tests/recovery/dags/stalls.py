"""
Tasks that are killed, stopped and hung: plan (a model call), a risky step, one effect, answer (a model call).

What goes wrong comes with the run's ``conf``, and so does the folder in which the run counts: one line an execution.
Airflow's own retry comes late on purpose (``LATE``), so that whatever comes sooner is recovery's work.
"""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import ctypes
import datetime as dt
import logging
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from airflow.sdk import Param, dag, task

from airflow_aiflow import Flow
from airflow_aiflow.demo.records import create_record

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
#: Longer than any case waits.
LATE = dt.timedelta(minutes=20)
#: What a race is run against.
SOON = dt.timedelta(seconds=3)
#: Never set: to wait a moment in a loop.
MOMENT = threading.Event()

PR_SET_PDEATHSIG = 1

PARAMS = {
    "folder": Param(type="string"),
    "token": Param(type="string", description="of this run: key of its effect and name of its model"),
    "what": Param("hold", type="string", description="what goes wrong"),
    "seconds": Param(20, type="number", description="how long what goes wrong by time takes"),
    "address": Param("", type="string", description="of the server that never answers"),
}


def note(folder: str, line: str) -> None:
    """Append one line, whole, whoever else writes."""
    handle = os.open(Path(folder) / "count.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def noted(folder: str, start: str) -> int:
    """Count lines."""
    return sum(line.startswith(start) for line in (Path(folder) / "count.txt").read_text().splitlines())


def hold(folder: str) -> None:
    """Be at work until told to go on."""
    while not (Path(folder) / "go").exists():
        MOMENT.wait(0.05)


def risky(what: str, folder: str, seconds: float, address: str) -> str:
    """Be the step in which it goes wrong: the first time, but for ``die``, which does so each time."""
    note(folder, f"step {os.getpid()} {os.getppid()}")
    first = noted(folder, "step ") == 1
    match what:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hold":
            hold(folder)
        case "child" if first:
            note(folder, f"child {subprocess.Popen(['sleep', '600']).pid}")
            hold(folder)
        case "orphan" if first:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
            hold(folder)
        case "http" if first:
            import httpx

            httpx.get(address, timeout=None)
        case "gil" if first:
            ctypes.PyDLL(None).sleep(int(seconds))
        case "loop":
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pass
    note(folder, "stepped")
    return what


class KillAt(logging.Filter):
    """Kill the process when it is about to log a line: between the ledger's record and what Airflow is told."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "the slot goes back" in record.getMessage():
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def body(flow: Flow, params: dict) -> str:
    """Plan, take the risk, have the effect, answer."""
    folder, token, what = params["folder"], params["token"], params["what"]
    note(folder, f"attempt {flow.attempt} {flow.generation} {os.getpid()} {os.getppid()}")
    first = noted(folder, "attempt ") == 1
    model = f"openai-chat:{token}"
    flow.llm("plan", "Charge the order. What comes first?", model_id=model)
    flow.step("risky", risky, what, folder, params["seconds"], params["address"])
    if what == "nap":
        if first:
            logging.getLogger("airflow_aiflow.flow").addFilter(KillAt())
        flow.sleep("nap", 31)
    flow.effect("record", create_record, {"token": token}, key=token, on_in_doubt="retry", timeout=90)
    flow.llm("answer", "The order is charged. Tell the customer.", model_id=model)
    if what.startswith("after_finish") and first:
        from airflow_aiflow.durable import failpoint

        failpoint.arm(what)
        note(folder, f"armed {os.getpid()} {os.getppid()}")
    return token


def set_ahead(context: dict) -> None:
    """Have a wrong clock from before the take-over on, where libfaketime is loaded."""
    set_clock(context, "+10m")


def set_behind(context: dict) -> None:
    """The same, the other way."""
    set_clock(context, "-10m")


def set_clock(context: dict, by: str) -> None:
    """Set this process's own clock, and note what it shows."""
    before, end = time.time(), time.monotonic() + 10
    os.environ["FAKETIME"] = by
    while abs(time.time() - before) < 300 and time.monotonic() < end:
        MOMENT.wait(0.05)
    note(context["params"]["folder"], f"clock {time.time()}")


def stalls(dag_id: str, **options) -> None:
    """Make a DAG of one such task."""

    @dag(dag_id=dag_id, schedule=None, start_date=START, params=PARAMS)
    def made():
        @task.durable(**options)
        def work(flow: Flow, params=None):
            return body(flow, params)

        work()

    made()


stalls("stalls_0", retries=0)
stalls("stalls_2", retries=2, retry_delay=LATE)
stalls("stalls_race", retries=2, retry_delay=SOON)
# May be silent for long, by its own word.
stalls("stalls_patient", retries=0, step_timeout=600)
stalls("stalls_ahead", retries=0, step_timeout=600, pre_execute=set_ahead)
stalls("stalls_behind", retries=0, step_timeout=600, pre_execute=set_behind)
# Without its pause between two recoveries, so that it dies as often as it may within seconds.
stalls("stalls_deadly", retries=0, recovery="rerun")


@dag(schedule=None, start_date=START, params=PARAMS)
def stalls_async():
    @task.durable(retries=0)
    async def work(flow: Flow, params=None):
        """C36: nothing else of the loop runs while the step does."""
        folder = params["folder"]
        note(folder, f"attempt {flow.attempt} {flow.generation} {os.getpid()} {os.getppid()}")
        await flow.llm("plan", "Charge the order.", model_id=f"openai-chat:{params['token']}")

        async def looping(what: str, folder: str, seconds: float) -> str:
            return risky(what, folder, seconds, "")

        await flow.step("risky", looping, params["what"], folder, params["seconds"])
        key = params["token"]
        await flow.effect("record", create_record, {"token": key}, key=key, on_in_doubt="retry")
        await flow.llm("answer", "Tell the customer.", model_id=f"openai-chat:{params['token']}")

    work()


@dag(schedule=None, start_date=START, params={**PARAMS, "count": Param(3, type="integer")})
def stalls_many():
    @task
    def listed(params=None):
        return [f"{params['token']}/{number}" for number in range(params["count"])]

    @task.durable(retries=0, pool="crowd")
    def one(flow: Flow, item: str, params=None):
        folder = params["folder"]
        note(folder, f"attempt {item} {flow.attempt} {os.getpid()} {os.getppid()}")
        flow.step("risky", held_one, folder, item, params["what"])
        flow.effect("act", act, folder, item, key=item)

    one.expand(item=listed())


def held_one(folder: str, item: str, what: str) -> str:
    """Be one of many."""
    note(folder, f"step {item} {os.getpid()} {os.getppid()}")
    if what == "hold":
        hold(folder)
    return item


def act(folder: str, item: str) -> str:
    """Be an effect that is counted in the folder."""
    note(folder, f"applied {item}")
    return item


@dag(schedule=None, start_date=START, params=PARAMS, max_active_runs=4)
def stalls_waiting():
    """After a run that failed, the next one stops half way: nothing of it is queued, running or scheduled."""

    @task.durable(retries=0)
    def first(flow: Flow, params=None):
        note(params["folder"], f"first {flow.attempt}")

    @task.durable(retries=0, depends_on_past=True)
    def work(flow: Flow, params=None):
        folder = params["folder"]
        note(folder, f"attempt {flow.attempt} {flow.generation} {os.getpid()} {os.getppid()}")
        if params["what"] == "fail":
            raise ValueError("the code's own error")

    first() >> work()


stalls_async()
stalls_many()
stalls_waiting()
