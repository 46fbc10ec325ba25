"""A map at scale: its rate over bare commits, its replay, its memory, and what a step costs as the ledger grows."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg

from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from bench.timing import TURN, median

#: Items of the map that is compared with bare commits, and that is killed and replayed.
ITEMS = 100_000

#: Items of the map whose workers wait for their commits.
WAITING = 20_000
#: Its threads.
THREADS = 32

#: Items of the map whose memory is measured, and bytes of each.
MANY, ITEM_BYTES = 1_000_000, 1024

#: Bare commits that are timed before a map and again after it.
BARE = 2_000

#: Rows of the ledger at its largest: of ten million the last nine take half an hour to make.
ROWS = 2_000_000
#: Steps that are timed at each size.
STEPS = 400

INSERT = "INSERT INTO aiflow.bench_bare_map VALUES (%s, %s)"

GROW = """
insert into aiflow.step (execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence, result,
    seal, ended_at, duration_ms, prints)
select 1000000000 + n / 100, 1, sha256(int8send(n)), 'step', 'compute', '', sha256(int8send(-n)), 0, 1,
    convert_to(repeat('x', 200), 'UTF8'), sha256(int8send(n)), clock_timestamp(), 1.5, '\\x0001020304050607'
from generate_series(%(from)s::bigint, %(to)s::bigint) n
"""

#: What each of these rows would have where another run may look for it.
GROW_REUSE = """
insert into aiflow.reuse (reuse_key, execution_id, generation, step_key)
select hashint8extended(n, 7), 1000000000 + n / 100, 1, sha256(int8send(n))
from generate_series(%(from)s::bigint, %(to)s::bigint) n
"""


def trivial(item: int, text: str) -> str:
    """Do nothing worth timing."""
    return text


def quiet(task: DurableTask) -> Services:
    """Give a task's services without the stats of tests, which keep every figure."""
    return replace(task.services, stats=None)


def _bare(dsn: str) -> Callable[[], float]:
    """Give what measures bare one-row commits a second."""
    connection, numbers, body = psycopg.connect(dsn), itertools.count(), b"x" * 200
    connection.execute("CREATE TABLE IF NOT EXISTS aiflow.bench_bare_map (id bigint PRIMARY KEY, body bytea NOT NULL)")
    connection.commit()

    def measure() -> float:
        began = time.perf_counter()
        for _ in range(BARE):
            connection.execute(INSERT, (next(numbers), body))
            connection.commit()
        return BARE / (time.perf_counter() - began)

    measure()
    connection.execute("TRUNCATE aiflow.bench_bare_map")
    connection.commit()
    return measure


def rates(dsn: str) -> dict[str, Any]:
    """
    Compare maps with bare one-row commits, measured right before and right after.

    :param dsn: of a migrated ledger.
    """
    bare = _bare(dsn)
    ledger = PostgresLedger.connect(dsn)
    try:
        before = bare()
        plain = _rate(ledger, "trivial", ITEMS, lambda f: f.map("trivial", trivial, range(ITEMS), "x" * 100))
        between = bare()
        waiting = _rate(
            ledger,
            "waiting",
            WAITING,
            lambda f: f.map("waiting", trivial, range(WAITING), "x" * 100, max_workers=THREADS, flush_interval=0),
        )
        after = bare()
    finally:
        ledger.close()
    return {
        "map_ratio": plain / ((before + between) / 2),
        "map_wait_ratio": waiting / ((between + after) / 2),
        "map_items_per_s": {"trivial": plain, "waiting": waiting, "bare": median([before, between, after])},
    }


def _rate(ledger: PostgresLedger, run_id: str, items: int, body: Callable[[Any], Any]) -> float:
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id=run_id)
    with open_flow(task.attempt(), quiet(task)) as flow:
        began = time.perf_counter()
        body(flow)
        return items / (time.perf_counter() - began)


# --- killed and replayed ----------------------------------------------------------------------------------------------


def killed_map(dsn: str) -> dict[str, Any]:
    """
    Kill a map at nine tenths and run it again: what is replayed in a second, and which calls are made once more.

    :param dsn: of a migrated ledger.
    """
    # A parent's statements must not be in the child's memory, so it is another program.
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.maps", "killed", dsn], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    assert child.stdout is not None
    called = int(child.stdout.readline())
    child.wait()
    assert child.returncode == -signal.SIGKILL, child.returncode
    ledger = PostgresLedger.connect(dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="killed")
    task.retried()
    try:
        with psycopg.connect(dsn) as connection:
            [(recorded,)] = connection.execute(
                "SELECT count(*) FROM aiflow.step s JOIN aiflow.execution x USING (execution_id)"
                " WHERE x.run_id = 'killed'"
            ).fetchall()
        _wait_for_lease(ledger, task)
        with open_flow(task.attempt(), quiet(task)) as flow:
            began = time.perf_counter()
            flow.map("killed", trivial, range(called), "x" * 100)
            seconds = time.perf_counter() - began
    finally:
        ledger.close()
    return {"map_replay_per_s": recorded / seconds, "map_calls_repeated": called - recorded}


def _wait_for_lease(ledger: PostgresLedger, task: DurableTask) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        standing = ledger.standing(task.execution)
        if standing is None or standing.lease_left <= 0:
            return
        time.sleep(min(1.0, max(0.05, standing.lease_left)))
    raise AssertionError("the killed attempt's lease does not lapse")


_called = itertools.count(1)


def killing(item: int, text: str) -> str:
    """Do what ``trivial`` does, and end the process once."""
    number = next(_called)
    if number == ITEMS * 9 // 10:
        print(number, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return text


def _run_until_killed(dsn: str) -> None:
    ledger = PostgresLedger.connect(dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="killed")
    with open_flow(task.attempt(), quiet(task)) as flow:
        flow.map("killed", killing, range(ITEMS), "x" * 100)


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(dsn: str, items: int = MANY) -> dict[str, Any]:
    """
    Run a large map whose results go nowhere but into the ledger, in a process of its own.

    :param dsn: of a migrated ledger.
    :param items: how many of 1 KiB each.
    """
    run = subprocess.run(
        [sys.executable, "-m", "bench.maps", "memory", dsn, str(items)], capture_output=True, text=True, check=True
    )
    return dict(json.loads(run.stdout.splitlines()[-1]))


def _items(number: int) -> Iterator[str]:
    for n in range(number):
        yield f"{n:08d}" + "x" * (ITEM_BYTES - 8)


def size(item: str) -> int:
    """Give a small result."""
    return len(item)


def _memory(dsn: str, number: int) -> None:
    import resource

    ledger = PostgresLedger.connect(dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="memory")
    began = time.perf_counter()
    with open_flow(task.attempt(), quiet(task)) as flow:
        flow.map("size", size, _items(number), results="none")
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"map_memory_mib": used, "map_memory_items": number, "map_memory_items_per_s": number / seconds}))


# --- growth -----------------------------------------------------------------------------------------------------------


def growth(dsn: str, rows: int = ROWS) -> dict[str, Any]:
    """
    Compare a step's cost in a small ledger with its cost in a large one, each over a bare commit of the same moment.

    Once for a step, and once for one that is looked for among other runs and that other runs may look for.

    :param dsn: of a migrated ledger.
    :param rows: of the large one.
    """
    bare = _bare(dsn)
    ledger = PostgresLedger.connect(dsn)
    numbers = itertools.count()
    try:
        small = [_step_cost(ledger, bare, numbers, reuse) for reuse in (None, 86_400.0)]
        with psycopg.connect(dsn, autocommit=True) as connection:
            for at in range(0, rows, 200_000):
                part = {"from": at, "to": min(at + 200_000, rows) - 1}
                connection.execute(GROW, part)
                connection.execute(GROW_REUSE, part)
        large = [_step_cost(ledger, bare, numbers, reuse) for reuse in (None, 86_400.0)]
    finally:
        ledger.close()
    return {"growth_ratio": large[0] / small[0], "growth_reuse_ratio": large[1] / small[1], "growth_rows": rows}


def _step_cost(ledger: PostgresLedger, bare: Callable[[], float], numbers: Iterator[int], reuse: float | None) -> float:
    """Give milliseconds of a step in bare commits."""
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id=f"growth {next(numbers)}")
    times: list[float] = []
    with open_flow(task.attempt(), quiet(task)) as flow:
        for _ in range(TURN):
            flow.step("warm", trivial, next(numbers), "x" * 200, reuse=reuse)
        before = bare()
        for _ in range(STEPS):
            began = time.perf_counter()
            flow.step("timed", trivial, next(numbers), "x" * 200, reuse=reuse)
            times.append(time.perf_counter() - began)
        after = bare()
    return median(times) * (before + after) / 2


def maps(dsn: str, rows: int = ROWS) -> dict[str, Any]:
    """
    Measure everything of this module.

    :param dsn: of a migrated ledger.
    :param rows: of the ledger at its largest.
    """
    return rates(dsn) | killed_map(dsn) | memory(dsn) | growth(dsn, rows)


if __name__ == "__main__":
    if sys.argv[1] == "killed":
        _run_until_killed(sys.argv[2])
    else:
        _memory(sys.argv[2], int(sys.argv[3]))
