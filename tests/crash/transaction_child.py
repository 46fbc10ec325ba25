"""One attempt that changes a database by a transaction, in a process of its own: ``python -m ... JOB``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psycopg

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.crash.child import DyingHost, hold_until_released, read_attempt, seen


def bill(cur: psycopg.Cursor[Any], number: int) -> str:
    """Change the target, and leave a line for each run."""
    seen("ran", str(number))
    cur.execute("INSERT INTO bill VALUES (%s)", (number,))
    hold_until_released("bill")
    return f"bill {number}"


def body(flow: Flow) -> str:
    """Make one transaction."""
    return flow.transaction("bill", bill, 7, conn_id="erp", key="seven")


def main(path: str) -> int:
    """Run one attempt."""
    job = json.loads(Path(path).read_text())
    host, store = DyingHost(), MemoryArtifactStore()
    host.databases["erp"] = job["target"]
    ledger = PostgresLedger.connect(job["dsn"])
    services = Services(
        ledger=ledger,
        store=lambda: store,
        host=host,
        settings=FlowSettings(lease=LeaseRules(ttl=3.0, interval=0.5), handover=job.get("handover", 30.0)),
        clock=SystemClock(),
    )
    try:
        seen("results", run_attempt(read_attempt(job), services, body))
    finally:
        ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
