"""``once`` in a real Airflow: a process is killed, a run cleared, a triggerer and a sensor give the slot back."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.stack import Stack
from airflow_aiflow.runtime.process import start_time

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 120.0

DAG = "once_operators"

#: Tasks that end well, and are cleared afterwards.
FINE = ("mail", "record", "trigger", "until", "comes", "mapped")


class Run:
    """Be one run of the DAG, with all that it has done outside."""

    def __init__(self, stack: Stack, client: AirflowClient, run_id: str, folder: Path) -> None:
        self.stack = stack
        self.client = client
        self.run_id = run_id
        self.folder = folder

    def lines(self) -> list[list[str]]:
        """What the scripts have written."""
        file = self.folder / "count.txt"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def done(self) -> dict[str, int]:
        """Count everything that the run has done."""
        counted = Counter(words[0] for words in self.lines())
        counted["mail"] = sum(self.run_id in str(mail.get("Subject", "")) for mail in self.stack.mail.mails())
        counted["record"] = sum(record["fields"] == {"run": self.run_id} for record in self.stack.records.records())
        counted["trigger"] = len(self.triggered())
        return dict(counted)

    def triggered(self) -> list[str]:
        """Give the runs that it has triggered."""
        found = self.client.request("GET", "/dags/once_target/dagRuns")["dag_runs"]
        return [one["dag_run_id"] for one in found if one["dag_run_id"].startswith("aiflow__af_")]

    def task(self, task_id: str, *states: str) -> dict[str, Any]:
        """Wait for a state of a task."""
        return self.client.wait_for_task(DAG, self.run_id, task_id, *states, timeout=PATIENCE)

    def ended(self) -> str:
        """Wait for the end of the run."""
        return self.client.wait_for_run(DAG, self.run_id, PATIENCE)


EXPECTED = {"mail": 1, "record": 1, "trigger": 1, "killed": 1, "mapped-a": 1, "mapped-b": 1}


def test_operators_do_their_work_once(airflow_stack: Stack, tmp_path: Path) -> None:
    client = airflow_stack.airflow.client()
    for dag_id in (DAG, "once_target"):
        client.wait_for_dag(dag_id)
    tmp_path.chmod(0o777)
    run = Run(airflow_stack, client, client.trigger(DAG, {"folder": str(tmp_path)}), tmp_path)

    _, pid = wait_for(lambda: next((line for line in run.lines() if line[0] == "killed"), None), "the script", PATIENCE)
    os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: True if start_time(int(pid)) is None else None, "its end", PATIENCE)
    run.task("comes", "up_for_reschedule")
    (tmp_path / "go").touch()
    (tmp_path / "never").touch()
    assert run.ended() == "failed", "the killed script is in doubt, and nobody ran it again"
    held = run.task("killed", "failed")
    assert held["try_number"] == 2
    assert run.done() == EXPECTED
    for task_id in ("record", "until", "comes", "trigger"):
        found = run.task(task_id, "success")
        assert found["try_number"] == 1, "no retry was burnt by giving the slot back"
    link = client.xcom(DAG, run.run_id, "trigger", "trigger_run_id")
    before = client.xcom(DAG, run.run_id, "record")

    client.clear(DAG, run.run_id, *FINE)
    assert run.ended() == "failed"
    assert run.done() == EXPECTED, "a clear of what was done does nothing again"
    assert client.xcom(DAG, run.run_id, "trigger", "trigger_run_id") == link
    assert client.xcom(DAG, run.run_id, "record") == before
    assert run.task("mail", "success")["try_number"] == 2
