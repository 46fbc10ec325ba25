"""Durable tasks in a real Airflow: processes are killed, slots given back, attempts superseded."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.attempt import Attempt, Counters
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.process import start_time, this_owner
from airflow_aiflow.runtime.takeover import take_over
from airflow_aiflow.storage.postgres import PostgresLedger

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 90.0


@dataclass(frozen=True)
class Run:
    """One run of a DAG, and the file in which its tasks count."""

    stack: Stack
    client: AirflowClient
    dag_id: str
    run_id: str
    folder: Path

    @property
    def lines(self) -> list[str]:
        """What the tasks have written so far."""
        file = self.folder / "count.txt"
        return file.read_text().splitlines() if file.exists() else []

    def line(self, start: str) -> list[str]:
        """Wait for a line and give its words."""
        found = wait_for(
            lambda: next((line for line in self.lines if line.startswith(start)), None), f"line {start!r}", PATIENCE
        )
        return found.split()

    def go(self) -> None:
        """Let a step that is held go on."""
        (self.folder / "go").touch()

    def ended(self) -> str:
        """Wait for the end of the run."""
        return self.client.wait_for_run(self.dag_id, self.run_id, PATIENCE)

    def task(self, task_id: str, *states: str) -> dict[str, Any]:
        """Wait until a task has one of some states."""
        return self.client.wait_for_task(self.dag_id, self.run_id, task_id, *states, timeout=PATIENCE)

    def log(self, task_id: str, try_number: int) -> str:
        """Give the log of a try."""
        return self.client.logs(self.dag_id, self.run_id, task_id, try_number)

    def entries(self, task_id: str, try_number: int) -> list[dict[str, Any]]:
        """Give the log of a try as its file has it."""
        folder = self.stack.home / "airflow" / "task-logs" / f"dag_id={self.dag_id}" / f"run_id={self.run_id}"
        lines = (folder / f"task_id={task_id}" / f"attempt={try_number}.log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def raised(self, task_id: str, try_number: int) -> list[str]:
        """Give the exceptions in the log of a try, outermost first, as ``Class: text``."""
        errors = [error for entry in self.entries(task_id, try_number) for error in entry.get("error_detail", [])]
        return [f"{error['exc_type']}: {error['exc_value']}" for error in errors]

    def ledger(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the ledger; ``%(run)s`` is the run's id."""
        with psycopg.connect(self.stack.postgres.dsn()) as connection:
            return connection.execute(query.encode(), {"run": self.run_id}).fetchall()

    def metadata(self, statement: str) -> None:
        """Change Airflow's own database, as a second scheduler would."""
        airflow = postgres_roles.AIRFLOW
        with psycopg.connect(self.stack.postgres.dsn(airflow, airflow)) as connection:
            connection.execute(statement.encode(), {"run": self.run_id})


@pytest.fixture(scope="module")
def client(airflow_stack: Stack) -> AirflowClient:
    """Give the API of an Airflow that knows this module's DAGs."""
    client = airflow_stack.airflow.client()
    for dag_id in ("ten_steps", "parks", "superseded", "doubtful", "large", "takes_back"):
        client.wait_for_dag(dag_id)
    return client


@pytest.fixture
def start(airflow_stack: Stack, client: AirflowClient, tmp_path: Path) -> Callable[..., Run]:
    """Give a way to start a run that counts in a folder of its own."""
    tmp_path.chmod(0o777)

    def start(dag_id: str, *, logical_date: str | None = None, **conf: Any) -> Run:
        run_id = client.trigger(dag_id, {"folder": str(tmp_path), **conf}, logical_date=logical_date)
        return Run(airflow_stack, client, dag_id, run_id, tmp_path)

    return start


def gone(pid: int) -> Callable[[], bool | None]:
    return lambda: True if start_time(pid) is None else None


def steps(run: Run) -> Counter[int]:
    return Counter(int(line.split()[1]) for line in run.lines if line.startswith("step"))


@pytest.mark.parametrize("logical_date", [None, "2026-01-01T00:00:00Z"])
def test_a_killed_task_goes_on_where_it_stopped(start: Callable[..., Run], logical_date: str | None) -> None:
    """C24: a run without a logical date resumes like any other."""
    run = start("ten_steps", logical_date=logical_date, hold_at=5)
    pid = int(run.line("step 5")[2])
    os.kill(pid, signal.SIGKILL)
    wait_for(gone(pid), "the end of the killed task", PATIENCE)
    run.go()
    assert run.ended() == "success"
    assert steps(run) == Counter({number: 2 if number == 5 else 1 for number in range(10)})
    assert [line for line in run.lines if line.startswith("attempt")] == ["attempt 1 1 False", "attempt 2 1 True"]
    assert run.line("read") == f"read {[number**2 for number in range(10)]}".split()
    assert run.task("work", "success")["try_number"] == 2
    told = run.log("work", 2)
    assert "aiflow: resuming attempt 2, generation 1: 5 steps recorded" in told
    assert "aiflow: done: 5 replayed, 5 ran" in told
    [(state, heard)] = run.ledger("select state, heard_at is not null from aiflow.execution where run_id = %(run)s")
    assert (state, heard) == ("succeeded", True)


def test_a_task_dies_with_its_supervisor(start: Callable[..., Run]) -> None:
    run = start("ten_steps", hold_at=0)
    _, _, pid, parent = run.line("step 0")
    os.kill(int(parent), signal.SIGKILL)
    wait_for(gone(int(pid)), "the end of the orphan", 10)
    run.client.set_state("ten_steps", run.run_id, "work", "failed")
    assert steps(run) == Counter({0: 1})


def test_a_parked_task_gives_its_slot_back_and_burns_no_retry(start: Callable[..., Run]) -> None:
    run = start("parks")
    parked = run.task("work", "up_for_reschedule")
    assert run.ended() == "success"
    done = run.task("work", "success")
    assert (done["try_number"], done["max_tries"], done["id"]) == (1, 0, parked["id"])
    assert steps(run) == Counter({3: 1})
    assert [line for line in run.lines if line.startswith("attempt")] == ["attempt 1 1"] * 2
    signs = run.ledger(
        "select sign, ending from aiflow.attempt join aiflow.execution using (execution_id) where run_id = %(run)s "
        "order by attempt.fence"
    )
    assert signs == [("first", "paused"), ("same", "succeeded")]


def test_a_task_whose_worker_is_told_to_end_comes_back(start: Callable[..., Run]) -> None:
    """C11: SIGTERM twice, 20 ms apart, to the supervisor: the step in hand counts, no retry is burnt."""
    run = start("ten_steps", hold_at=3)
    supervisor = int(run.line("step 3")[3])
    os.kill(supervisor, signal.SIGTERM)
    threading.Event().wait(0.02)
    os.kill(supervisor, signal.SIGTERM)
    wait_for(lambda: told(run, "aiflow: this process is told to end"), "the task's answer to the signal", PATIENCE)
    run.go()
    parked = run.task("work", "up_for_reschedule")
    reasons = "select state::text, pause_reason from aiflow.execution where run_id = %(run)s and task_id = 'work'"
    assert run.ledger(reasons) == [("paused", "this process is told to end")]
    assert run.ended() == "success"
    done = run.task("work", "success")
    assert (done["try_number"], done["id"]) == (1, parked["id"])
    assert steps(run) == Counter(range(10))
    signs = run.ledger(
        "select sign, ending from aiflow.attempt join aiflow.execution using (execution_id) where run_id = %(run)s "
        "order by attempt.fence"
    )
    assert signs == [("first", "paused"), ("same", "succeeded")]


def test_what_was_done_is_taken_back_after_the_last_try_and_done_anew_after_a_clear(start: Callable[..., Run]) -> None:
    run = start("takes_back")
    assert run.ended() == "failed"
    words = [line.split(maxsplit=1) for line in run.lines]
    # Not after the first try, which is followed by one.
    assert [word for word, _ in words] == ["charged", "refunded"], run.log("order", 1)
    assert words[1][1] == "charge 1"
    assert "there is none left" in " ".join(run.raised("order", 2))
    run.go()
    run.client.clear("takes_back", run.run_id, "order")
    run.task("order", "success")
    words = [line.split(maxsplit=1) for line in run.lines]
    assert [word for word, _ in words] == ["charged", "refunded", "charged"]
    assert words[2][1] != words[0][1]  # under a new key: the target would swallow the old one
    states = "select name, state::text from aiflow.effect where key = %(key)s order by name"
    with psycopg.connect(run.stack.postgres.dsn()) as connection:
        found = connection.execute(states.encode(), {"key": f"order/{run.folder}"}).fetchall()
    assert found == [("charge", "succeeded"), ("charge/undo", "succeeded")]


@pytest.mark.parametrize("inside", [True, False], ids=["between steps", "outside the flow"])
def test_a_superseded_attempt_ends_without_a_word_to_airflow(start: Callable[..., Run], inside: bool) -> None:
    """
    Two schedulers start one task instance: the same id comes back with the next try number, elsewhere.

    The ledger hears of it first here, so that a report about this process would reach the row before it is another's.
    """
    run = start("superseded", inside=inside)
    pid = int(run.line("step 0")[2])
    with ThreadPoolExecutor(1) as pool, closing(PostgresLedger.connect(run.stack.postgres.dsn())) as ledger:
        newcomer = pool.submit(take_over, later_attempt(run), ledger, FlowSettings(), SystemClock(), ttl=60)
        run.go()
        taken = newcomer.result(PATIENCE)
    assert (taken.sign, taken.number) == (Sign.RETRY, 2)
    wait_for(lambda: told(run, "aiflow: a later attempt"), "the word of the superseded attempt", PATIENCE)
    elsewhere = "try_number = 2, hostname = 'elsewhere', pid = 1, last_heartbeat_at = now() + interval '1 hour'"
    run.metadata(
        f"update task_instance set {elsewhere} where dag_id = 'superseded' and run_id = %(run)s and state = 'running'"
    )
    wait_for(gone(pid), "the end of the superseded attempt", PATIENCE)
    # The supervisor's own words: it was told to end the process, and then it reports nothing.
    wait_for(lambda: told(run, "Task killed!"), "the supervisor's last word", PATIENCE)
    found = run.client.task_instance("superseded", run.run_id, "work")
    assert (found["state"], found["try_number"], found["hostname"]) == ("running", 2, "elsewhere")
    assert steps(run) == Counter({0: 1})
    run.client.set_state("superseded", run.run_id, "work", "failed")


def told(run: Run, event: str) -> bool | None:
    return any(entry["event"].startswith(event) for entry in run.entries("work", 1)) or None


def later_attempt(run: Run) -> Attempt:
    """Describe the next try of the run's task, as another worker would see it."""
    [(ti_id, run_after)] = run.ledger(
        "select ti_id, run_after from aiflow.attempt join aiflow.execution using (execution_id) where run_id = %(run)s"
    )
    return Attempt(
        execution=ExecutionId(run.dag_id, run.run_id, "work"),
        counters=Counters(ti_id=ti_id, try_number=2, max_tries=0, retries=0, clear_number=0, run_after=run_after),
        owner=this_owner(str(ti_id)),
    )


def test_a_doubt_is_held_and_burns_no_retry(start: Callable[..., Run]) -> None:
    run = start("doubtful")
    assert run.ended() == "failed"
    assert len([line for line in run.lines if line.startswith("acted")]) == 1
    held = run.task("pay", "failed")
    assert (held["try_number"], held["max_tries"]) == (2, 3)
    outer, inner = run.raised("pay", 2)
    assert outer.startswith("AirflowFailException: effect 'pay'")
    assert inner == outer.replace("AirflowFailException", "EffectInDoubtError")
    assert run.ledger("select state from aiflow.effect_now where key = 'pay/' || %(run)s") == [("in_doubt",)]


def test_large_results_cross_processes(start: Callable[..., Run]) -> None:
    run = start("large")
    assert run.ended() == "success"
    assert run.line("read") == ["read", "list", "5", "page", "4"]
    assert len([line for line in run.lines if line.startswith("one page")]) == 5
    shown = str(run.client.xcom("large", run.run_id, "pages"))
    assert "StoredList" in shown
    assert len(shown) < 300
