"""
One real Airflow with recovery in it, its runs, and what is seen of them from outside.

Nothing here asks the code under test how it went: effects are counted by the service that creates records, model
calls by the server that answers them, attempts and steps by lines in a file; requeues and finds alone are the ledger's
rows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
import psycopg
import requests

from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.airflow_client import END_STATES, AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack, StackPlan
from airflow_aiflow.runtime.process import start_time

DAGS = Path(__file__).parent / "dags"
RECOVERY = "aiflow_recovery"

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 75.0

#: Airflow's own defaults, where the embedded stack has quicker ones: what is found sooner, recovery found.
AIRFLOW_DEFAULTS = {
    "scheduler.task_instance_heartbeat_timeout": "300",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "10",
    "scheduler.orphaned_tasks_check_interval": "300",
    "workers.min_heartbeat_interval": "5",
    "workers.max_failed_heartbeats": "3",
    "workers.execution_api_timeout": "5",
}

T = TypeVar("T")


@dataclass
class Run:
    """
    Be one run of one of the DAGs.

    :param token: key of its effect, name of its model.
    :param folder: where its tasks count.
    :param hit_at: when it was killed, stopped or hung, by this machine's clock.
    """

    world: World
    dag_id: str
    run_id: str
    token: str
    folder: Path
    task_id: str = "work"
    hit_at: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """What the tasks have written so far."""
        file = self.folder / "count.txt"
        return file.read_text().splitlines() if file.exists() else []

    def count(self, start: str) -> int:
        """Count the lines that begin so."""
        return sum(line.startswith(start) for line in self.lines)

    def line(self, start: str, number: int = 1, timeout: float = PATIENCE) -> list[str]:
        """Wait for the so-manieth line that begins so, and give its words."""

        def look() -> str | None:
            found = [line for line in self.lines if line.startswith(start)]
            return found[number - 1] if len(found) >= number else None

        return wait_for(look, f"line {number} of {start!r} in {self.dag_id}", timeout).split()

    def at_risk(self) -> tuple[int, int]:
        """Wait until the risky step is at work; give its pid and its supervisor's."""
        words = self.line("step ")
        return int(words[1]), int(words[2])

    def go(self) -> None:
        """Let whatever is held go on, now and later."""
        (self.folder / "go").touch()

    def hit(self, *pids: int, by: signal.Signals = signal.SIGKILL) -> None:
        """
        Kill processes, the supervisor's pid first where both are to go: else it would tell Airflow.

        :param pids: in this order.
        :param by: the signal.
        """
        self.hit_at = time.time()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, by)

    def ended(self, timeout: float = PATIENCE) -> str:
        """Wait for the end of the run; the API server may be away meanwhile."""
        return wait_for(lambda: state if (state := self.state()) in END_STATES else None, f"end of {self}", timeout)

    def succeeds(self, timeout: float = PATIENCE) -> bool:
        """Wait for success; a run that has failed may yet be brought back."""
        try:
            wait_for(lambda: self.state() == "success" or None, f"success of {self}", timeout)
        except StackError:
            return False
        return True

    def state(self) -> str | None:
        """Give the run's state, if it can be had."""
        try:
            return str(self.world.client.run(self.dag_id, self.run_id)["state"])
        except (OSError, StackError):
            return None

    def task(self) -> dict[str, Any]:
        """Give the task instance as it is."""
        return self.world.client.task_instance(self.dag_id, self.run_id, self.task_id)

    def ended_after(self) -> float | None:
        """Give the seconds from the hit to the end of the task instance; ``None``: it has none."""
        ended = self.task()["end_date"]
        return None if ended is None else datetime.fromisoformat(ended).timestamp() - self.hit_at

    def scheduled(self) -> int:
        """Count the instances of the task that wait to be queued."""
        found = self.world.client.task_instances(self.dag_id, self.run_id)
        return sum(each["task_id"] == self.task_id and each["state"] == "scheduled" for each in found)

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.run_id}"


class World:
    """
    Own a stack.

    :param folder: for everything it leaves.
    :param options: of Airflow, by ``section.name``.
    :param recovery: text of the file that makes the recovery DAG; ``None``: there is none.
    """

    def __init__(self, folder: Path, options: Mapping[str, str], *, recovery: str | None) -> None:
        self.folder = folder
        dags = folder / "dags"
        shutil.copytree(DAGS, dags, ignore=shutil.ignore_patterns("__pycache__"))
        if recovery is not None:
            (dags / "recovery.py").write_text(recovery)
        self.recovery = recovery is not None
        self.stack = Stack(StackPlan(home=folder / "stack", dags_folder=dags, airflow_options=options))
        self._client: AirflowClient | None = None
        self._runs = 0

    @property
    def client(self) -> AirflowClient:
        """Give Airflow's API."""
        if self._client is None:
            self._client = self.stack.airflow.client()
        return self._client

    def start(self) -> None:
        """Start the stack, and wait until recovery watches."""
        self.stack.start()
        for dag_id in ("stalls_0", "stalls_2"):
            self.client.wait_for_dag(dag_id, PATIENCE)
        if self.recovery:
            self.client.wait_for_dag(RECOVERY, PATIENCE)
            wait_for(self.watched, "the recovery DAG at work", PATIENCE)

    def watched(self) -> bool | None:
        """Say whether a run of the recovery DAG has begun its work."""
        rows = self.client.request(
            "GET",
            f"/dags/{RECOVERY}/dagRuns/~/taskInstances",
            params={"state": ["running", "deferred", "up_for_reschedule"]},
        )
        return bool(rows["task_instances"]) or None

    def run(self, dag_id: str, what: str, *, logical_date: str | None = None, **conf: Any) -> Run:
        """
        Start a run.

        :param dag_id: of ``dags/stalls.py``.
        :param what: goes wrong in it.
        :param logical_date: in ISO form; ``None``: it has none, and so no run before it.
        """
        self._runs += 1
        token = f"{what}-{self._runs}-{time.time_ns() % 10**9}"
        folder = self.folder / token
        folder.mkdir()
        folder.chmod(0o777)
        given = {"folder": str(folder), "token": token, "what": what, **conf}
        return Run(self, dag_id, self.client.trigger(dag_id, given, logical_date=logical_date), token, folder)

    # --- what the outside counted ---

    def effects(self, run: Run) -> int:
        """Count the records that a run created."""
        return sum(record["fields"].get("token") == run.token for record in self.stack.records.records())

    def calls(self, run: Run) -> int:
        """Count the model calls that a run is billed for."""
        return sum(request.fields["model"] == run.token for request in self.stack.model.requests())

    def alerts(self, run: Run) -> int:
        """Count the mails that tell of a run."""
        return sum(run.run_id in str(mail["Subject"]) for mail in self.stack.mail.mails())

    def ledger(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the ledger."""
        with psycopg.connect(self.stack.postgres.dsn(), connect_timeout=5) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def metadata(self, statement: str, *values: object) -> int:
        """Change Airflow's own database; only to set a scene that no API can."""
        airflow = postgres_roles.AIRFLOW
        with psycopg.connect(self.stack.postgres.dsn(airflow, airflow)) as connection:
            return connection.execute(statement.encode(), values).rowcount

    def requeues(self, run: Run) -> int:
        """Count the requeues of a run that Airflow took."""
        [(number,)] = self.ledger(
            "select count(*) from aiflow.requeue join aiflow.execution using (execution_id) "
            "where dag_id = %s and run_id = %s and requeue.state in ('cleared', 'consumed')",
            run.dag_id,
            run.run_id,
        )
        return int(number)

    def requeued_at(self, run: Run) -> float | None:
        """Give when the first requeue was decided, in seconds since 1970 by the database."""
        [(at,)] = self.ledger(
            "select extract(epoch from min(requeue.at)) from aiflow.requeue join aiflow.execution using (execution_id) "
            "where dag_id = %s and run_id = %s and requeue.state <> 'void'",
            run.dag_id,
            run.run_id,
        )
        return None if at is None else float(at)

    def incidents(self, run: Run) -> list[tuple[str, str, str]]:
        """Give kind, decision and reason of each find with consequences, the oldest first."""
        return [
            (str(kind), str(decision), str(why))
            for kind, decision, why in self.ledger(
                "select kind, decision, why from aiflow.incident where dag_id = %s and run_id = %s "
                "and (decision <> 'leave' or report) order by found_at",
                run.dag_id,
                run.run_id,
            )
        ]

    def left_alone(self, run: Run) -> list[str]:
        """Give why finds of a run were left alone."""
        query = "select why from aiflow.incident where dag_id = %s and run_id = %s and decision = 'leave'"
        return [str(why) for (why,) in self.ledger(query, run.dag_id, run.run_id)]

    def found_at(self, run: Run) -> float | None:
        """Give when a pass first found something after the hit."""
        [(at,)] = self.ledger(
            "select extract(epoch from min(found_at)) from aiflow.incident where dag_id = %s and run_id = %s "
            "and found_at >= to_timestamp(%s)",
            run.dag_id,
            run.run_id,
            run.hit_at,
        )
        return None if at is None else float(at)

    def attempts(self, run: Run) -> int:
        """Count the attempts that took over, as the ledger numbers them."""
        [(number,)] = self.ledger(
            "select coalesce(max(number), 0) from aiflow.attempt join aiflow.execution using (execution_id) "
            "where dag_id = %s and run_id = %s",
            run.dag_id,
            run.run_id,
        )
        return int(number)

    # --- parts of Airflow, found and hit ---

    def component(self, name: str) -> int:
        """Give the pid of one of Airflow's components."""
        return self.stack.airflow.components()[name]

    def kill_scheduler(self) -> None:
        """Kill the scheduler with its workers and their tasks; the keeper starts a new one a second later."""
        pid = self.component("scheduler")
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    @contextmanager
    def without_api_server(self) -> Iterator[None]:
        """Keep the API server away: whoever would start it again is stopped meanwhile."""
        keeper, server = self.stack.airflow.pid, self.component("api-server")
        os.kill(keeper, signal.SIGSTOP)
        try:
            for process in [*psutil.Process(server).children(recursive=True), psutil.Process(server)]:
                process.kill()
            yield
        finally:
            os.kill(keeper, signal.SIGCONT)
        wait_for(lambda: True if self.component("api-server") != server else None, "a new API server", PATIENCE)

    def restart_postgres(self) -> None:
        """Restart PostgreSQL, which holds the ledger and Airflow's own database."""
        self.stack.postgres.stop()
        self.stack.postgres.start()

    def stop(self) -> None:
        """End everything."""
        self.stack.stop()


@contextmanager
def never_answering() -> Iterator[str]:
    """Give the address of a server that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


def gone(pid: int) -> Callable[[], bool | None]:
    """Give a look at whether a process has ended."""
    return lambda: True if start_time(pid) is None else None


def patiently(look: Callable[[], T | None]) -> Callable[[], T | None]:
    """Take an API server or a database that is away for nothing to see yet."""

    def looking() -> T | None:
        try:
            return look()
        except (requests.RequestException, StackError, psycopg.OperationalError):
            return None

    return looking
