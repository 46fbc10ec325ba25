"""
One attempt that waits or is told to end, in a process of its own: ``python -m tests.crash.waiting_child JOB``.

JOB is what ``tests.crash.child`` reads, with the scenario's name. SIGTERM does here what it does in Airflow's task
process: the handler calls ``on_kill`` and the code goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptParked, EffectInDoubtError
from airflow_aiflow.runtime.async_flow import AsyncFlow, run_async
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.runtime.shutdown import Shutdown
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.crash.child import IN_DOUBT, OUTSIDE, DyingHost, Models, read_attempt, seen, send

PARKED = 5


def lines(what: str) -> list[str]:
    """Read what the outside saw."""
    path = OUTSIDE / what
    return path.read_text().splitlines() if path.exists() else []


def submit(ctx: EffectContext, data: str) -> str:
    """Begin a job outside."""
    job_id = f"job-{len(lines('jobs')) + 1}"
    seen("jobs", f"{job_id} {ctx.idempotency_key} {data}")
    return job_id


def poll(job_id: str) -> JobStatus:
    """Be done at the third look."""
    seen("looks", job_id)
    return JobStatus("succeeded" if len(lines("looks")) >= 3 else "running")


def fetch(job_id: str) -> str:
    """Give the result, and count it."""
    seen("fetched", job_id)
    return f"model of {job_id}"


def find(idempotency_key: str) -> str | None:
    """Look for a job by the key that it bears."""
    return next((line.split()[0] for line in lines("jobs") if line.split()[1] == idempotency_key), None)


def job(flow: Flow) -> Any:
    """Run one job, and something after it."""
    model = flow.job("train", submit, "data", poll=poll, result=fetch, find=find, key="k", poll_interval=0.05)
    return [model, flow.step("after", len, model)]


def unfindable(flow: Flow) -> Any:
    """Run one job that can't be asked for by its key."""
    return flow.job("train", submit, "data", poll=poll, result=fetch, key="k", poll_interval=0.05, on_in_doubt="hold")


def asleep(flow: Flow) -> Any:
    """Sleep, and count who woke up."""
    flow.sleep("nap", 1.0)
    seen("woke", str(flow.attempt))
    return flow.step("after", len, "abc")


def answered(flow: Flow) -> Any:
    """Ask a model, then send what it said."""
    answer = flow.llm("ask", "What is it?")
    return flow.effect("send", send, answer, key="one", on_in_doubt="hold")


def send_and_be_told(ctx: EffectContext, to: str) -> str:
    """Send outside; the word to end comes 5 ms after this returned."""
    if not lines("sent"):
        timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()
    return send(ctx, to)


def just_sent(flow: Flow) -> Any:
    """Send, then go on with small steps until the word comes."""
    sent = flow.effect("send", send_and_be_told, "a@example.com", key="one", on_in_doubt="hold")
    return [sent, *(flow.step("small", str, number) for number in range(300))][:1]


async def compute(number: int) -> int:
    """Compute outside, on the loop."""
    await asyncio.sleep(0)
    seen("computed", str(number))
    return number * number


async def send_soon(ctx: EffectContext, to: str) -> str:
    """Send outside, from the loop."""
    await asyncio.sleep(0)
    seen("sent", f"{ctx.idempotency_key} {to}")
    return to


async def side_by_side(flow: AsyncFlow) -> Any:
    """Compute two things at a time, then send."""
    squares = await asyncio.gather(*(flow.step("square", compute, number) for number in range(2)))
    sent = await flow.effect("send", send_soon, "a@example.com", key="one", on_in_doubt="hold")
    return [*squares, sent]


def awaited(_flow: Flow) -> Any:
    """Run an async body."""
    return run_async(side_by_side)


SCENARIOS: dict[str, Callable[[Flow], Any]] = {
    "job": job,
    "unfindable": unfindable,
    "asleep": asleep,
    "answered": answered,
    "just_sent": just_sent,
    "awaited": awaited,
}


def main(path: str) -> int:
    """Run one attempt."""
    described = json.loads(Path(path).read_text())
    store = S3ArtifactStore(S3Settings(**described["store"]))
    shutdown = Shutdown()
    signal.signal(signal.SIGTERM, lambda _number, _frame: shutdown.ask())
    settings = FlowSettings(
        lease=LeaseRules(ttl=3.0, interval=0.5),
        handover=30.0,
        ledger_patience=5.0,
        spool_dir=OUTSIDE / "spool",
        shutdown_grace=described.get("grace", 20.0),
    )
    ledger = PostgresLedger.connect(described["dsn"])
    services = Services(
        ledger=ledger,
        store=lambda: store,
        host=DyingHost(),
        settings=settings,
        clock=SystemClock(),
        models=Models,
    )
    try:
        result = run_attempt(read_attempt(described), services, SCENARIOS[described["scenario"]], shutdown=shutdown)
    except EffectInDoubtError as error:
        seen("doubts", str(error))
        return IN_DOUBT
    except AttemptParked as parked:
        seen("parked", parked.why)
        return PARKED
    finally:
        ledger.close()
    seen("results", json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
