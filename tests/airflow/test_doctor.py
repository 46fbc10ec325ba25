"""`aiflow doctor` and `aiflow runs requeue` at a real stack: it is well, and a dead task comes home by a word."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.local.stack import Stack

PATIENCE = 90.0

Aiflow = Callable[..., tuple[int, Any]]


@pytest.fixture
def aiflow(airflow_stack: Stack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Aiflow:
    """Give a way to run commands about the stack, which they find by its folder alone."""
    for variable in list(os.environ):
        if variable.startswith(("AIRFLOW_CONN_", "AIRFLOW__")):
            monkeypatch.delenv(variable)

    def aiflow(*words: str) -> tuple[int, Any]:
        code = main([*words, "--json", "--home", str(airflow_stack.home)])
        return code, json.loads(capsys.readouterr().out)

    return aiflow


def test_the_stack_is_well_but_for_recovery_which_it_does_not_run(airflow_stack: Stack, aiflow: Aiflow) -> None:
    code, report = aiflow("doctor", "--skip", "inbox", "--skip", "spool")
    found = {one["check"]: one for one in report["findings"]}
    wrong = {name: one for name, one in found.items() if one["level"] == "error"}
    assert (code, set(wrong)) == (1, {"recovery.dag", "recovery.runs"}), wrong
    assert "aiflow_recovery.py" in wrong["recovery.dag"]["fix"]
    warned = {name: one for name, one in found.items() if one["level"] == "warning"}
    assert warned.keys() <= {"airflow.heartbeat_timeout", "api.health"}, warned
    for secret in (airflow_stack.postgres.password("aiflow"), airflow_stack.object_store.secret_key):
        assert secret not in json.dumps(report)
    assert aiflow("doctor", "--skip", "recovery", "--skip", "inbox", "--skip", "spool")[0] == 0


def test_a_dead_task_without_retries_is_requeued_by_a_persons_word(
    airflow_stack: Stack, aiflow: Aiflow, tmp_path: Path
) -> None:
    client = airflow_stack.airflow.client()
    client.wait_for_dag("requeued")
    run_id = client.trigger("requeued", conf={"folder": str(tmp_path)})
    address = f"requeued/{run_id}"
    assert client.wait_for_run("requeued", run_id, PATIENCE) == "failed"

    def requeued() -> Any:
        code, said = aiflow("runs", "requeue", address)
        return said if code == 0 else None

    said = wait_for(requeued, "a requeue, once the lease has lapsed", 30.0)
    assert [one["kind"] for one in said["requeued"]] == ["exhausted"]
    assert client.wait_for_run("requeued", run_id, PATIENCE) == "success"
    assert (tmp_path / "count.txt").read_text().split() == ["before", "after"]
    code, said = aiflow("runs", "requeue", address, "--force")
    assert (code, said["requeued"]) == (1, [])
    assert "succeeded" in said["left"][0]["why"]
