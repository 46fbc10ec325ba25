"""A process that runs a map and may be killed in it; the outside counts its calls in a file."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask

#: Told on the command line.
TOLD: dict[str, Any] = {}


def outside(item: int) -> int:
    """Count the call outside, and end the process where the test says so."""
    with (Path(TOLD["folder"]) / "calls").open("ab", buffering=0) as calls:
        calls.write(b"%d\n" % item)
    if item == TOLD.get("killer"):
        os.kill(os.getpid(), signal.SIGKILL)
    if item == TOLD.get("at") and not TOLD["try"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * 2


def main() -> None:
    """Run one attempt."""
    TOLD.update(json.loads(sys.argv[1]))
    ledger = PostgresLedger.connect(TOLD["dsn"])
    task = DurableTask(
        ledger=ledger,
        clock=SystemClock(),
        run_id=TOLD["run_id"],
        settings=FlowSettings(lease=LeaseRules(ttl=1.0, interval=0.3)),
        retries=9,
    )
    for _ in range(TOLD["try"]):
        task.retried()
    given = task.run(lambda f: f.map("outside", outside, range(TOLD["items"]), **TOLD["options"]))
    print(json.dumps(given))
    ledger.close()


if __name__ == "__main__":
    main()
