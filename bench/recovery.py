"""
What one pass of recovery asks the ledger, over a long past and a busy present.

By itself: ``python -m bench.recovery --executions 10000000``, which needs 15 GB of disk and some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.recovery_port import Scan
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from bench.many import fill
from bench.timing import median

#: Of every attempt; nobody looks for its process here.
OWNER = Owner("worker", "a boot", 4026531836, 4711, 1, "ti")

#: Executions at work, and those of them that are stalled.
LIVE, STALLED = 1_000, 50

#: Passes that are timed, after some that make the server and the connection warm.
PASSES, WARM = 30, 10


def recovery_pass(dsn: str, executions: int) -> dict[str, Any]:
    """
    Time what one pass reads: whose leases are live here, what stalls, the histories of that, and the pulse.

    :param dsn: of a migrated, empty ledger.
    :param executions: done ones.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        fill(connection, json.dumps(OWNER.to_plain()), past=executions, live=LIVE)
    ledger = PostgresRecovery.connect(dsn)
    times: dict[str, list[float]] = {"at_work": [], "stalled": [], "histories": [], "pulse": []}
    try:
        for number in range(WARM + PASSES):
            found = _timed(times, "stalled", lambda: ledger.stalled(Scan(settled=0.0)))
            assert len(found) == STALLED, len(found)
            _timed(times, "at_work", lambda: ledger.at_work(boot_id=OWNER.boot_id, pid_namespace=OWNER.pid_namespace))
            _timed(times, "histories", lambda stalls=found: ledger.histories(stalls))  # type: ignore[misc]
            _timed(times, "pulse", ledger.pulse)
            if number < WARM:
                times = {name: [] for name in times}
    finally:
        ledger.close()
    medians = {name: median(values) for name, values in times.items()}
    return {"recovery_pass_ms": sum(medians.values()), "recovery_pass": {"executions": executions, **medians}}


def _timed(times: dict[str, list[float]], name: str, call: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    found = call()
    times[name].append((time.perf_counter() - began) * 1000)
    return found


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000, help="done executions (default 1,000,000)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aiflow-bench-") as folder, PostgresServer(Path(folder) / "pg") as server:
        dsn = server.fresh_database()
        upgrade(dsn)
        print(json.dumps(recovery_pass(dsn, arguments.executions), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
