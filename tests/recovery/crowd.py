"""
250 stalled at once, PostgreSQL restarted in the middle of requeuing them.

The task instances are Airflow's own, in ten runs; what is not played is their first attempt, which would cost minutes
on two cores: the ledger is given one take-over each, by a dead process, and Airflow's rows are set to failed, as
by a node that died. From there on everything is real: the finds, the clears, and the attempts that follow.
"""

from __future__ import annotations

import dataclasses
import subprocess
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import datetime
from functools import partial
from uuid import UUID

import psycopg

from airflow_aiflow.durable.attempt import Attempt, Counters, Owner
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.airflow_client import AirflowApiError, wait_for
from airflow_aiflow.runtime.process import start_time, this_owner
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.recovery.expected import Seen
from tests.recovery.world import PATIENCE, Run, World, patiently

RUNS, EACH = 10, 25
#: Seconds after the first mark.
RESTART_AFTER = 0.2
#: Seconds for all attempts to run, on two cores that have other things to do.
LONGEST = 900.0
#: Seconds for which the dead owner's leases would still be live: nobody may wait for that.
TTL = 300.0


def dead_owner() -> Owner:
    """Give a process of this machine that has ended."""
    with subprocess.Popen(["sleep", "60"]) as process:
        start = start_time(process.pid) or 0
        process.kill()
    return dataclasses.replace(this_owner("dead"), pid=process.pid, start=start)


def crowd(world: World) -> Seen:
    """Play it."""
    set_pool(world, 0)
    runs = [world.run("stalls_many", "none", count=EACH) for _ in range(RUNS)]
    for run in runs:
        run.task_id = "one"
        wait_for(partial(_all_there, run), f"{EACH} task instances of {run}", PATIENCE)
    _lose(world, runs)
    began = time.time()
    wait_for(lambda: _marks(world, runs) or None, "the first mark", PATIENCE)
    threading.Event().wait(RESTART_AFTER)
    world.restart_postgres()
    restarted = time.time()
    # A pass that the restart broke off after a clear has not noted it: Airflow's own rows tell what was cleared.
    wait_for(patiently(lambda: _marks(world, runs) >= RUNS * EACH or None), "all marks", PATIENCE)
    marked = time.time()
    wrong = [] if restarted < marked else ["all were requeued before PostgreSQL was restarted"]
    wrong += _tries(world, runs)
    took = time.time() - began
    wait_for(patiently(lambda: set_pool(world, 8)), "the pool", PATIENCE)
    for run in runs:
        run.succeeds(LONGEST)
    return _counted(world, runs, took, wrong)


def set_pool(world: World, slots: int) -> bool:
    """Give the pool of the crowd so many slots."""
    body = {"pool": "crowd", "slots": slots, "include_deferred": False}
    try:
        world.client.request("POST", "/pools", body={"name": "crowd", "slots": slots})
    except AirflowApiError:
        world.client.request("PATCH", "/pools/crowd", params={"update_mask": "slots"}, body=body)
    return True


def _all_there(run: Run) -> bool | None:
    return run.scheduled() == EACH or None


def _lose(world: World, runs: list[Run]) -> None:
    """Have each task instance begun by a process that is dead, and given up by Airflow."""
    ids = [run.run_id for run in runs]
    airflow = postgres_roles.AIRFLOW
    with psycopg.connect(world.stack.postgres.dsn(airflow, airflow)) as connection:
        rows = connection.execute(
            "select ti.id, ti.dag_id, ti.run_id, ti.map_index, ti.try_number, ti.max_tries, dr.clear_number, "
            "dr.run_after from task_instance ti join dag_run dr using (dag_id, run_id) "
            "where ti.task_id = 'one' and ti.run_id = any(%s)",
            [ids],
        ).fetchall()
        connection.execute(
            "update task_instance set state = 'failed', start_date = now(), end_date = now() "
            "where task_id = 'one' and run_id = any(%s)",
            [ids],
        )
    owner = dead_owner()
    with closing(PostgresLedger.connect(world.stack.postgres.dsn())) as ledger:
        for row in rows:
            ledger.take_over(_attempt(owner, *row), sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL)


def _attempt(
    owner: Owner,
    ti_id: UUID,
    dag_id: str,
    run_id: str,
    map_index: int,
    try_number: int,
    max_tries: int,
    clear_number: int,
    run_after: datetime,
) -> Attempt:
    counters = Counters(UUID(str(ti_id)), try_number, max_tries, 0, clear_number, run_after)
    return Attempt(ExecutionId(dag_id, run_id, "one", map_index), counters, owner, mapped=True)


def _marks(world: World, runs: list[Run]) -> int:
    [(marks,)] = world.ledger(
        "select count(*) from aiflow.requeue join aiflow.execution using (execution_id) where run_id = any(%s)",
        [run.run_id for run in runs],
    )
    return int(marks)


def _requeued(world: World, runs: list[Run]) -> int:
    return sum(world.requeues(run) for run in runs)


def _tries(world: World, runs: list[Run]) -> list[str]:
    """Find task instances that were cleared more than once."""

    def scheduled() -> list[int] | None:
        found = [
            int(each["try_number"])
            for run in runs
            for each in world.client.task_instances(run.dag_id, run.run_id)
            if each["task_id"] == "one" and each["state"] == "scheduled"
        ]
        return found if len(found) == RUNS * EACH else None

    tries = Counter(wait_for(patiently(scheduled), "all to be scheduled again", PATIENCE))
    return [] if set(tries) == {2} else [f"tries after the requeue: {dict(tries)}, must be 2 each"]


def _counted(world: World, runs: list[Run], took: float, wrong: list[str]) -> Seen:
    applied = Counter(line.split()[1] for run in runs for line in run.lines if line.startswith("applied "))
    states = {run.state() for run in runs}
    return Seen(
        requeues=_requeued(world, runs),
        effects=len(applied),
        calls=0,
        attempts=max(world.attempts(run) for run in runs),
        state="success" if states == {"success"} else str(sorted(map(str, states))),
        go_on=took,
        wrong=(*wrong, *(f"{item} was applied {times} times" for item, times in applied.items() if times > 1)),
    )
