"""
What one scrape of ``/aiflow/metrics`` asks the ledger, over a long past and a busy present.

By itself: ``python -m bench.figures --executions 10000000``, which needs 15 GB of disk and some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_figures import PostgresFigures
from bench.many import fill
from bench.timing import median

OWNER = Owner("worker", "a boot", 4026531836, 4711, 1, "ti")

#: Executions at work, with twenty steps each: what came since the last scrape, written again before each one.
LIVE = 1_000

#: Scrapes that are timed, after some that make the server and the connection warm.
SCRAPES, WARM = 20, 5

#: What is new at each scrape: the rows of the present, as if they had been written since.
NEW = (
    "update aiflow.tally_mark set upto = statement_timestamp() - interval '60 s'",
    (
        "update aiflow.step set recorded_at = statement_timestamp() - interval '45 s' where execution_id in"
        " (select execution_id from aiflow.lease)"
    ),
    (
        "update aiflow.attempt set started_at = statement_timestamp() - interval '45 s' where fence = 3 and"
        " execution_id in (select execution_id from aiflow.lease)"
    ),
)


def scrape(dsn: str, executions: int) -> dict[str, Any]:
    """
    Time one look, with 20,000 new steps and 1,000 new attempts each, and one with nothing new.

    :param dsn: of a migrated, empty ledger.
    :param executions: done ones.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        fill(connection, json.dumps(OWNER.to_plain()), past=executions, live=LIVE)
        connection.execute(
            "update aiflow.step set recorded_at = ended_at where execution_id not in"
            " (select execution_id from aiflow.lease)"
        )
        connection.execute("vacuum analyze aiflow.step")
        figures = PostgresFigures.connect(dsn)
        busy, idle = [], []
        try:
            for _ in range(WARM + SCRAPES):
                for change in NEW:
                    connection.execute(change)
                busy.append(_timed(figures))
                idle.append(_timed(figures))
        finally:
            figures.close()
    return {"executions": executions, "scrape_ms": median(busy[WARM:]), "idle_scrape_ms": median(idle[WARM:])}


def _timed(figures: PostgresFigures) -> float:
    began = time.perf_counter()
    figures.look()
    return (time.perf_counter() - began) * 1000


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000, help="done executions (default 1,000,000)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aiflow-bench-") as folder, PostgresServer(Path(folder) / "pg") as server:
        dsn = server.fresh_database()
        upgrade(dsn)
        print(json.dumps(scrape(dsn, arguments.executions), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
