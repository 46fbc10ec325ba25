"""A recorded step, an effect and a resume, each against the plain SQL that nobody could do without."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg

from airflow_aiflow.runtime.attempt_run import open_flow
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from bench.timing import in_turns, median, p95

INSERT = "INSERT INTO aiflow.bench_bare VALUES (%s, %s)"

#: The connection of the database that ``flow.transaction`` changes: the ledger's own server, as the bare INSERT's.
TARGET = "bench"

#: Recorded steps that a resume reads.
RECORDED = 10_000

#: Readings of the resume and of the plain SELECT, in turns.
RESUMES = 7


@contextmanager
def opened(dsn: str, run_id: str) -> Iterator[tuple[DurableTask, Flow]]:
    """Give a task and its open flow on a real ledger."""
    ledger = PostgresLedger.connect(dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id=run_id, databases={TARGET: dsn})
    try:
        with open_flow(task.attempt(), task.services) as flow:
            yield task, flow
    finally:
        ledger.close()


def compute(number: int, text: str) -> str:
    """Do nothing worth timing."""
    return text


def send(number: int, text: str) -> str:
    """Do nothing worth timing."""
    return text


def insert_once(cursor: psycopg.Cursor[Any], number: int, body: bytes) -> None:
    """Insert the same row as the bare INSERT."""
    cursor.execute(INSERT, (number, body))


def cost_of_safety(dsn: str, rounds: int) -> dict[str, Any]:
    """
    Compare a step, an effect and a transaction with a bare one-row INSERT and its commit.

    The INSERT is made in both ways that there are: as psycopg does it unless told otherwise, where the commit is a
    statement of its own (``bare``), and as one statement that commits itself (``autocommit``), which is how the ledger
    works. It is also measured before all the rest (``bare_alone``): a client that sleeps while it waits shares its
    processor with the server then, and is quicker than beside calls that wait awake (``storage/awake.py``).

    :param dsn: of a migrated ledger.
    :param rounds: turns that each candidate gets.
    """
    numbers = itertools.count()
    text = "x" * 200
    with (
        psycopg.connect(dsn, autocommit=True) as auto,
        psycopg.connect(dsn) as bare,
        opened(dsn, "cost") as (_task, flow),
    ):
        auto.execute("CREATE TABLE aiflow.bench_bare (id bigint PRIMARY KEY, body bytea NOT NULL)")
        body = text.encode()

        def insert() -> None:
            bare.execute(INSERT, (next(numbers), body))
            bare.commit()

        alone = in_turns({"bare_alone": insert}, rounds)
        times = alone | in_turns(
            {
                "bare": insert,
                "autocommit": lambda: auto.execute(INSERT, (next(numbers), body)),
                "step": lambda: flow.step("compute", compute, next(numbers), text),
                "effect": lambda: flow.effect("send", send, (number := next(numbers)), text, key=f"bench/{number}"),
                "transaction": lambda: flow.transaction(
                    "insert", insert_once, (number := next(numbers)), body, conn_id=TARGET, key=f"bench/{number}"
                ),
            },
            rounds,
        )
    return _over_bare({name: median(values) for name, values in times.items()}) | {
        "times_ms": {name: {"median": median(values), "p95": p95(values)} for name, values in times.items()},
    }


def _over_bare(medians: Mapping[str, float]) -> dict[str, float]:
    return {
        f"{name}{suffix}_ratio": medians[name] / medians[over]
        for over, suffix in (("bare", ""), ("autocommit", "_autocommit"), ("bare_alone", "_alone"))
        for name in ("step", "effect", "transaction")
    }


def resume(dsn: str) -> dict[str, Any]:
    """
    Compare the start of an attempt over many recorded steps with one plain SELECT of the same rows.

    :param dsn: of a migrated ledger.
    """
    ledger = PostgresLedger.connect(dsn)
    task = DurableTask(ledger=ledger, clock=SystemClock(), run_id="resume")
    try:
        task.run(lambda flow: flow.map("compute", compute, range(RECORDED), "x" * 100, max_workers=8))
        standing = ledger.standing(task.execution)
        assert standing is not None
        plain, first_live, replays = [], [], []
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(RESUMES):
                plain.append(_plain_select(connection, standing.execution_pk))
                live, replay = _resumed(task)
                first_live.append(live)
                replays.append(replay)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    finally:
        ledger.close()
    return {
        "resume_ratio": median(first_live) / median(plain),
        "resume_memory_mib": grown / 1024,
        "resume_ms": {
            "plain_select": median(plain),
            "to_first_live_step": median(first_live),
            "replay_of_all_through_flow_map": median(replays),
        },
    }


def _plain_select(connection: psycopg.Connection[Any], execution_pk: int) -> float:
    began = time.perf_counter()
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute("SELECT * FROM aiflow.step WHERE execution_id = %s", (execution_pk,)).fetchall()
    assert len(rows) >= RECORDED
    return (time.perf_counter() - began) * 1000


def _resumed(task: DurableTask) -> tuple[float, float]:
    attempt = task.attempt()
    task.retried()
    began = time.perf_counter()
    with open_flow(attempt, task.services) as flow:
        flow.step("live", compute, task.clock.now().microsecond, "live")
        live = (time.perf_counter() - began) * 1000
        began = time.perf_counter()
        flow.map("compute", compute, range(RECORDED), "x" * 100, max_workers=8)
        return live, (time.perf_counter() - began) * 1000
