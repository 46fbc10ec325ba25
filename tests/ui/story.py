"""Runs of real pipelines for the pages to show: made once a session, each the way it happens to people."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from airflow_aiflow.durable.attempt import Attempt, Counters
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.process import this_owner
from airflow_aiflow.runtime.takeover import take_over
from airflow_aiflow.storage.postgres import PostgresLedger

DAGS = Path(__file__).parent / "dags"

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 150.0
#: Seconds that the stand-in takes for an answer: long enough to be seen on a time axis.
ANSWER_SECONDS = 0.15


#: Runs that are begun with the stack: pipeline, run and conf. No test does to one what another does not expect.
SHARED: dict[str, tuple[str, str, dict[str, object]]] = {
    "review": ("contract_review", "november-review", {}),
    "doubt": ("invoice_payment", "november-invoice", {"invoice": "INV-2041"}),
    "path": ("invoice_payment", "november-invoice-2", {"invoice": "INV-2042"}),
    "import": ("nightly_import", "nightly-import", {}),
}


@dataclass(frozen=True)
class Told:
    """One run: where its pages are."""

    dag_id: str
    run_id: str
    folder: Path

    def run_tab(self) -> str:
        """Give the path of the run's tab."""
        return f"dags/{self.dag_id}/runs/{self.run_id}/plugin/aiflow-run"

    def task_tab(self, task_id: str) -> str:
        """Give the path of a task instance's tab."""
        return f"dags/{self.dag_id}/runs/{self.run_id}/tasks/{task_id}/plugin/aiflow-task"


class Teller:
    """
    Make runs in one stack.

    :param stack: a running one, with the DAGs of ``DAGS``.
    :param folder: for what the tasks remember outside Airflow.
    """

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self.client: AirflowClient = stack.airflow.client()
        self._folder = folder
        self._shared: dict[str, Told] = {}
        stack.model.set_faults(Fault("delay", seconds=ANSWER_SECONDS))

    def begin_shared(self) -> None:
        """Start the runs of ``SHARED``, side by side: each waits for most of its time."""
        for name, (dag_id, run_id, conf) in SHARED.items():
            self._shared[name] = self.begin(dag_id, run_id, **conf)

    def shared(self, name: str) -> Told:
        """
        Give a run that was begun with the stack.

        :param name: in ``SHARED``.
        """
        return self._shared[name]

    def begin(self, dag_id: str, run_id: str, **conf: object) -> Told:
        """Start a run with a folder of its own."""
        folder = self._folder / run_id
        folder.mkdir(mode=0o777, parents=True)
        folder.chmod(0o777)
        self.client.wait_for_dag(dag_id)
        self.client.trigger(dag_id, {"folder": str(folder), **conf}, run_id)
        return Told(dag_id, run_id, folder)

    def ended(self, told: Told) -> str:
        """Wait for the end of a run."""
        return self.client.wait_for_run(told.dag_id, told.run_id, PATIENCE)

    def asked(self, told: Told, task_id: str) -> None:
        """Wait until a task waits for a person."""
        self.client.wait_for_task(told.dag_id, told.run_id, task_id, "awaiting_input", "deferred", timeout=PATIENCE)

    def cleared(self, told: Told, task_id: str) -> None:
        """Clear a task of an ended run, as a person does, and wait for the run's new end."""
        body = {"dry_run": False, "dag_run_id": told.run_id, "task_ids": [task_id], "only_failed": False}
        self.client.request("POST", f"/dags/{told.dag_id}/clearTaskInstances", body=body)
        wait_for(lambda: self._runs_again(told), f"{told.run_id} runs again", PATIENCE)
        self.ended(told)

    def overtaken(self, told: Told) -> None:
        """Have another worker take the run's only task over while its first attempt is at work."""
        wait_for(lambda: (told.folder / "begun").exists() or None, "the first step", PATIENCE)
        with ThreadPoolExecutor(1) as pool, closing(PostgresLedger.connect(self.stack.postgres.dsn())) as ledger:
            attempt = self._next_attempt(told)
            # The first attempt is in a step and can't let go, so that the newcomer's patience ends.
            impatient = FlowSettings(handover=1.0)
            pool.submit(take_over, attempt, ledger, impatient, SystemClock(), ttl=60).result(PATIENCE)
        assert self._endings(told) == ["superseded", None]
        (told.folder / "go").touch()

    def _next_attempt(self, told: Told) -> Attempt:
        """Describe the next try of the run's only task, as another worker would see it."""
        [(ti_id, run_after)] = self._ask(told, "ti_id, run_after")
        return Attempt(
            execution=ExecutionId(told.dag_id, told.run_id, "work"),
            counters=Counters(ti_id=ti_id, try_number=2, max_tries=0, retries=0, clear_number=0, run_after=run_after),
            owner=this_owner(str(ti_id)),
        )

    def _endings(self, told: Told) -> list[str | None]:
        return [ending for (ending,) in self._ask(told, "ending::text")]

    def _ask(self, told: Told, what: str) -> list[tuple[Any, ...]]:
        query = f"select {what} from aiflow.attempt join aiflow.execution using (execution_id) where run_id = %s"
        with psycopg.connect(self.stack.postgres.dsn()) as connection:
            return connection.execute(f"{query} order by aiflow.attempt.fence".encode(), [told.run_id]).fetchall()

    def _runs_again(self, told: Told) -> bool | None:
        return True if self.client.run(told.dag_id, told.run_id)["state"] in ("queued", "running") else None


def copy_dags(folder: Path) -> Path:
    """Copy the pipelines to a DAG folder."""
    shutil.copytree(DAGS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
