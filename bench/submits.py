"""
What a submit costs until its DAG run exists, over what nobody could do without: one commit, one run by Airflow's API.

By itself: ``python -m bench.submits``. Airflow's own API server is real, and alone: no scheduler takes part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg

from airflow_aiflow.local import airflow_settings, stack_connections
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.private_file import write_json
from airflow_aiflow.storage.migrate import upgrade
from bench.timing import median, p95

DAG = """
from airflow.sdk import dag, task


@dag(schedule=None, is_paused_upon_creation=True)
def nothing():
    @task
    def does() -> None: ...

    does()


nothing()
"""

#: Turns in which each candidate is timed once, and turns before them that are not counted.
TURNS, WARM = 100, 10

#: Seconds for Airflow to come up and to know the DAG.
PATIENCE = 120.0


#: One process: the metadata database, the DAG, the server.
SERVE = """
from airflow.cli import cli_parser
from airflow.utils import db

db.initdb()
parser = cli_parser.get_parser()
for command in (["dags", "reserialize"], ["api-server"]):
    arguments = parser.parse_args(command)
    arguments.func(arguments)
"""


@dataclass(frozen=True)
class Place:
    """Say where an API server and its databases are."""

    url: str
    password: str
    postgres: PostgresServer


def timed(call: Callable[[int], object], number: int) -> float:
    """Give the milliseconds of a call."""
    began = time.perf_counter()
    call(number)
    return (time.perf_counter() - began) * 1000


class Candidates:
    """
    Be what is compared.

    :param place: where an API server is.
    """

    def __init__(self, place: Place) -> None:
        login = {"username": "admin", "password": place.password}
        token = httpx.post(f"{place.url}/auth/token", json=login, timeout=60).json()["access_token"]
        self.http = httpx.Client(base_url=place.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        self.ledger = psycopg.connect(place.postgres.dsn(role="aiflow_owner"))
        self.ledger.execute("create table aiflow.bench_commit (id bigint primary key, body bytea not null)")
        self.ledger.commit()
        self.airflow = psycopg.connect(place.postgres.dsn("airflow", "airflow"), autocommit=True)
        self.answered: list[float] = []

    def commit(self, number: int) -> None:
        """Commit a row as large as a submission's."""
        self.ledger.execute("insert into aiflow.bench_commit values (%s, %s)", (number, b"x" * 500))
        self.ledger.commit()

    def by_airflow(self, number: int) -> None:
        """Make a run by Airflow's own API."""
        body = {"dag_run_id": f"bench_{number}", "logical_date": None}
        self.http.post("/api/v2/dags/nothing/dagRuns", json=body).raise_for_status()

    def submit(self, number: int) -> None:
        """Submit, and wait until the run is there."""
        began = time.perf_counter()
        run_id = self.post(f"bench {number}")
        self.answered.append((time.perf_counter() - began) * 1000)
        while not self.runs(run_id):
            pass

    def post(self, key: str) -> str:
        """Submit; give the run's id."""
        body = {"pipeline": "nothing", "input": {}, "idempotency_key": key}
        answer = self.http.post("/aiflow/api/v1/submissions", json=body)
        answer.raise_for_status()
        return str(answer.json()["run_id"])

    def runs(self, run_id: str) -> int:
        """Count the runs of an id."""
        [(count,)] = self.airflow.execute("select count(*) from dag_run where run_id = %s", (run_id,)).fetchall()
        return int(count)


def submits(place: Place, turns: int) -> dict[str, Any]:
    """
    Time the candidates in turns.

    :param place: where an API server is.
    :param turns: that count.
    """
    both = Candidates(place)
    times: dict[str, list[float]] = {"commit": [], "by_airflow": [], "submit": []}
    for number in range(WARM + turns):
        for name, found in times.items():
            found.append(timed(getattr(both, name), number))
    counted = {name: found[WARM:] for name, found in times.items()} | {"answer": both.answered[WARM:]}
    medians = {name: median(found) for name, found in counted.items()}
    return {
        "submit_ratio": medians["submit"] / (medians["commit"] + medians["by_airflow"]),
        "submit_answer_ms": medians["answer"],
        "submit_ms": {name: {"median": median(found), "p95": p95(found)} for name, found in counted.items()},
    }


@contextmanager
def alone(folder: Path) -> Iterator[Place]:
    """Give Airflow's API server without the rest of Airflow."""
    (folder / "dags").mkdir()
    (folder / "dags" / "nothing.py").write_text(DAG)
    with PostgresServer(folder / "pg") as postgres:
        upgrade(postgres.dsn(role="aiflow_owner"))
        port, words = free_port(), airflow_settings.stack_secrets(folder)
        write_json(folder / "passwords.json", {airflow_settings.ADMIN: words["admin_password"]})
        dsn = postgres.dsn("airflow", "airflow").replace("postgresql://", "postgresql+psycopg2://", 1)
        options = airflow_settings.airflow_options(folder, folder / "dags", port, dsn, words)
        connections = airflow_settings.connections_as_environment({"aiflow_ledger": stack_connections.ledger(postgres)})
        environment = airflow_settings.clean_environment(os.environ) | airflow_settings.as_environment(options)
        with (folder / "server.log").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-P", "-c", SERVE],
                env=environment | connections | {"AIRFLOW_HOME": str(folder)},
                cwd=folder,
                stdout=log,
                stderr=log,
            )
            try:
                place = Place(f"http://127.0.0.1:{port}", words["admin_password"], postgres)
                _wait(place, server)
                yield place
            finally:
                server.terminate()
                server.wait()


def _wait(place: Place, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        try:
            if httpx.get(f"{place.url}/api/v2/version", timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError("Airflow's API server did not come up")


def submitted(turns: int) -> dict[str, Any]:
    """
    Start Airflow's API server, and measure.

    :param turns: that count.
    """
    with tempfile.TemporaryDirectory(prefix="aiflow-bench-") as folder:
        Path(folder).chmod(0o755)
        with alone(Path(folder)) as place:
            return submits(place, turns)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m bench.submits", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of each candidate (default {TURNS})")
    print(json.dumps(submitted(parser.parse_args().turns), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
