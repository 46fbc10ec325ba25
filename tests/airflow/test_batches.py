"""A batch in a real Airflow: its process is killed in its calls, and what failed is run again alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from airflow_aiflow.cli import ledger_address
from airflow_aiflow.local.airflow_client import AirflowClient, wait_for
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.stack import Stack
from tests.airflow.dags.batches import ITEMS

DAG, TASK = "batch_of_reviews", "judge"

#: Seconds for what Airflow does within a few, on a machine that is busy with other things.
PATIENCE = 180.0


@pytest.fixture(scope="module")
def client(airflow_stack: Stack) -> AirflowClient:
    client = airflow_stack.airflow.client()
    client.wait_for_dag(DAG)
    return client


def asked(stack: Stack) -> int:
    return sum(one.fields["path"].endswith("completions") for one in stack.model.requests())


def rows(stack: Stack, run_id: str) -> list[dict[str, Any]]:
    client = stack.object_store.client()

    def read(key: str) -> bytes:
        answer = client.get_object("aiflow", key)
        try:
            return bytes(answer.read())
        finally:
            answer.close()
            answer.release_conn()

    manifest = json.loads(read(f"batches/{run_id}/manifest.json"))
    return [
        json.loads(line)
        for shard in manifest["shards"]
        for line in read(shard["uri"].removeprefix("s3://aiflow/")).splitlines()
    ]


def worker(stack: Stack, run_id: str) -> int | None:
    with psycopg.connect(stack.postgres.dsn()) as connection:
        found = connection.execute(
            "select (a.owner ->> 'pid')::int from aiflow.attempt a join aiflow.execution x using (execution_id)"
            " where x.run_id = %s and x.task_id = %s order by a.number desc limit 1",
            (run_id, TASK),
        ).fetchone()
    return None if found is None else int(found[0])


def test_a_killed_batch_goes_on_and_what_failed_is_run_again_alone(airflow_stack: Stack, client: AirflowClient) -> None:
    stack = airflow_stack
    stack.model.set_faults(Fault("status", status=400, contains="Review 7 "), Fault("delay", seconds=0.3))
    before = asked(stack)
    try:
        run_id = client.trigger(DAG, {})
        wait_for(lambda: asked(stack) - before >= ITEMS // 3 or None, "a third of the calls", PATIENCE)
        pid = worker(stack, run_id)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert client.wait_for_run(DAG, run_id, PATIENCE) == "success"
        again = asked(stack) - before - ITEMS
        print("calls made again", again)
        assert 0 < again <= 4 + 4 * 2, "what was in flight, and a flush of 200 ms"
        found = rows(stack, run_id)
        assert [row["key"] for row in found] == [f"r{n}" for n in range(ITEMS)]
        assert [row["key"] for row in found if row["error"]] == ["r7"]
        log = client.logs(DAG, run_id, TASK, 2)
        assert "60 items to ask about" in log
        assert "1 of 60 items failed" in log

        stack.model.set_faults()
        before = asked(stack)
        command = [sys.executable, "-m", "airflow_aiflow.cli", "batch", "retry-failed", f"{DAG}/{run_id}"]
        command += ["--home", str(stack.home), "--json"]
        # Tests before this one in the process may have named a ledger of their own, and that comes before --home.
        environment = {name: value for name, value in os.environ.items() if name != ledger_address.VARIABLE}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: not any(row["error"] for row in rows(stack, run_id)) or None, "the last answer", PATIENCE)
        assert client.wait_for_run(DAG, run_id, PATIENCE) == "success"
        assert asked(stack) - before == 1, "that item alone"
    finally:
        stack.model.set_faults()
