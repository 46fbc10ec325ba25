"""
What streams of events cost: how soon an event is seen, and many clients on one worker of an API server.

By itself: ``python -m bench.streams``, ``--clients 2000`` by default. The server is a process of its own with the app's
routes on a real ledger; Airflow's users and runs are stand-ins, so that what is measured is ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from airflow_aiflow.durable.submission import SubmissionRequest
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_events import PostgresEvents
from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions
from airflow_aiflow.testing import DurableTask
from bench.timing import median, p95

#: Events a second over all runs, for so many seconds.
RATE, SECONDS = 50, 20

#: Streams at once.
CLIENTS = 2_000

#: Runs that clients follow; each run has as many clients as it takes.
RUNS = 50

#: Events of the measurement of how soon they are seen, and seconds between two: each comes by itself.
EVENTS, APART = 100, 0.15

#: Connections that are opened at a time.
AT_A_TIME = 100

#: Seconds for the server to come up, and for the last event to be seen.
PATIENCE = 180.0


def serve(dsn: str, port: int, told: bool) -> None:
    """Be the server: one worker."""
    import uvicorn
    from fastapi import FastAPI

    from airflow_aiflow.api import following, rights
    from airflow_aiflow.api.event_hub import EventHub
    from airflow_aiflow.api.event_routes import EventRoutes
    from airflow_aiflow.durable.submitting import SubmissionService
    from airflow_aiflow.storage.postgres_listen import EventListener
    from airflow_aiflow.storage.postgres_runs import PostgresRuns

    class Running:
        """Say of every run that it is at work."""

        state, start_date, end_date, held = "running", None, None, False

        def look(self, submission: Any) -> Any:
            return self

        def words(self, runs: Any) -> dict[Any, str]:
            return dict.fromkeys(runs, "running")

    runs: Any = Running()
    events, rows = PostgresEvents.connect(dsn), PostgresSubmissions.connect(dsn)
    service = SubmissionService(rows, PostgresRuns.connect(dsn), runs, window_days=30)
    hub = EventHub(lambda: events, runs.words, (lambda: EventListener(dsn)) if told else None)
    app = FastAPI()
    app.include_router(EventRoutes(following.Following(lambda: service, hub)).router())
    app.dependency_overrides[rights.signed_in] = lambda: "somebody"
    vars(following)["may"] = lambda *_: True
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


@contextmanager
def served(dsn: str, *, told: bool = True) -> Iterator[tuple[str, psutil.Process]]:
    """Give a server's address and process."""
    port = free_port()
    command = [sys.executable, "-m", "bench.streams", "--serve", str(port), *([] if told else ["--deaf"])]
    program = subprocess.Popen(command, env=os.environ | {"AIFLOW_BENCH_DSN": dsn})
    url, never = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
    try:
        while time.monotonic() < never:
            try:
                httpx.get(url, timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, psutil.Process(program.pid)
    finally:
        program.terminate()
        program.wait()


def submitted(dsn: str, count: int) -> list[tuple[str, str]]:
    """Hand tasks in, and say that their runs are made; give ids and run ids."""
    rows, found = PostgresSubmissions.connect(dsn), []
    for number in range(count):
        request = SubmissionRequest(user="ann", pipeline="answer", input={}, key=f"{time.time_ns()} {number}")
        one, _ = rows.submit(request, window_days=30)
        rows.made(one.submission_id)
        found.append((str(one.submission_id), one.run_id))
    rows.close()
    return found


async def until(holds: Callable[[], bool]) -> None:
    """Wait, looking now and then: what is waited for happens in other tasks and processes."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def follow(client: httpx.AsyncClient, url: str, seen: list[tuple[int, float]], up: asyncio.Event) -> None:
    """Keep the number of each tick, and when it came."""
    async with client.stream("GET", url) as answer:
        up.set()
        async for line in answer.aiter_lines():
            if line.startswith("data:") and '"tick"' in line:
                seen += [(json.loads(line[5:])["data"]["number"], time.time())]


def soon(dsn: str, *, told: bool) -> list[float]:
    """
    Measure from the event's commit to a client's eyes.

    :param told: whether the database tells of news.
    :return: milliseconds of each event.
    """
    [(submission_id, run_id)] = submitted(dsn, 1)
    ledger = PostgresLedger.connect(dsn, tells=told)
    task = DurableTask(ledger=ledger, clock=SystemClock(), dag_id="answer", run_id=run_id, task_id="run")
    on_disk: list[float] = []
    seen: list[tuple[int, float]] = []

    def emit() -> None:
        with open_flow(task.attempt(), task.services) as flow:
            for number in range(EVENTS):
                flow.emit("tick", number=number)
                on_disk.append(time.time())
                time.sleep(APART)

    async def measure(url: str) -> None:
        async with httpx.AsyncClient(timeout=None) as client:
            up = asyncio.Event()
            path = f"{url}/api/v1/submissions/{submission_id}/events"
            following = asyncio.create_task(follow(client, path, seen, up))
            await up.wait()
            await asyncio.sleep(2)
            await asyncio.to_thread(emit)
            await until(lambda: len(seen) >= EVENTS)
            following.cancel()

    with served(dsn, told=told) as (url, _):
        asyncio.run(measure(url))
    ledger.close()
    return [max(0.0, at - on_disk[number]) * 1000 for number, at in seen]


async def _crowd(
    url: str, many: list[tuple[str, str]], clients: int, server: psutil.Process, dsn: str
) -> dict[str, Any]:
    before = server.memory_info().rss
    seen: list[list[tuple[int, float]]] = [[] for _ in range(clients)]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:
        following: list[asyncio.Task[None]] = []
        for place in range(0, clients, AT_A_TIME):
            ups = []
            for number in range(place, min(place + AT_A_TIME, clients)):
                ups.append(asyncio.Event())
                path = f"{url}/api/v1/submissions/{many[number % len(many)][0]}/events"
                following.append(asyncio.create_task(follow(client, path, seen[number], ups[-1])))
            await asyncio.gather(*(up.wait() for up in ups))
        await asyncio.sleep(3)
        writer = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.streams",
            "--write",
            *(run for _, run in many),
            env=os.environ | {"AIFLOW_BENCH_DSN": dsn},
            stdout=asyncio.subprocess.PIPE,
        )
        most = 0
        while writer.returncode is None:
            most = max(most, await asyncio.to_thread(_connections, dsn, server.pid))
            try:
                await asyncio.wait_for(writer.wait(), 1)
            except TimeoutError:
                continue
        assert writer.stdout is not None
        written = Counter[int](json.loads(await writer.stdout.read()))
        wanted = {number: written[number % len(many)] for number in range(clients)}
        await until(lambda: all(len(found) >= wanted[number] for number, found in enumerate(seen)))
        grown = server.memory_info().rss - before
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    lost = sum(wanted[number] - len({tick for tick, _ in found}) for number, found in enumerate(seen))
    twice = sum(len(found) - len({tick for tick, _ in found}) for found in seen)
    return {
        "streams": clients,
        "streams_events": {"written": sum(written.values()), "seen": sum(len(found) for found in seen)},
        "streams_lost_or_twice": lost + twice,
        "streams_memory_mib": grown / 2**20,
        "streams_connections": most,
    }


def _connections(dsn: str, pid: int) -> int:
    """Count the server's connections to the database, by their ports."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ports = {found.laddr.port for found in psutil.Process(pid).net_connections("tcp") if found.raddr}
        rows = connection.execute("select client_port from pg_stat_activity where datname = current_database()")
        return len(ports & {row[0] for row in rows})


def write(dsn: str, runs: list[str]) -> list[int]:
    """Write so many events a second over all runs; give for each event the place of its run."""
    ledger = PostgresLedger.connect(dsn, tells=True)
    found: list[int] = []
    opened = []
    for run_id in runs:
        task = DurableTask(ledger=ledger, clock=SystemClock(), dag_id="answer", run_id=run_id, task_id="run")
        context = open_flow(task.attempt(), task.services)
        opened.append((context, context.__enter__()))
    began = time.monotonic()
    for number in range(RATE * SECONDS):
        place = number % len(runs)
        opened[place][1].emit("tick", number=number)
        found.append(place)
        time.sleep(max(0.0, began + (number + 1) / RATE - time.monotonic()))
    ledger.close()
    return found


def streams(dsn: str, clients: int) -> dict[str, Any]:
    """
    Measure all of it.

    :param dsn: of a migrated ledger.
    :param clients: of the crowd.
    """
    told, looked = soon(dsn, told=True), soon(dsn, told=False)
    many = submitted(dsn, RUNS)
    with served(dsn) as (url, server):
        crowd = asyncio.run(_crowd(url, many, clients, server, dsn))
    return {
        "event_ms": median(told),
        "event_ms_p95": p95(told),
        "event_without_notify_ms": median(looked),
        **crowd,
    }


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS, help="streams at once (default 2,000)")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--deaf", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(os.environ["AIFLOW_BENCH_DSN"], arguments.serve, not arguments.deaf)
    elif arguments.write:
        print(json.dumps(write(os.environ["AIFLOW_BENCH_DSN"], arguments.write)))
    else:
        with (
            tempfile.TemporaryDirectory(prefix="aiflow-bench-") as folder,
            PostgresServer(Path(folder) / "pg") as server,
        ):
            dsn = server.fresh_database()
            upgrade(dsn)
            print(json.dumps(streams(dsn, arguments.clients), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
