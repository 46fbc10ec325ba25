"""Start attempts of one execution as processes, kill them, and read what the outside saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from airflow_aiflow.testing.task import uuid7

#: Longest that one attempt may take; reached only where something hangs.
ATTEMPT_SECONDS = 90


@dataclass
class Attempts:
    """
    Make attempts of one execution.

    :param folder: where the outside leaves its lines.
    :param dsn: of the ledger.
    :param store: settings of the artifact store.
    :param module: the program that is one attempt.
    """

    folder: Path
    dsn: str
    store: dict[str, Any]
    run_id: str = "manual__1"
    try_number: int = 0
    ti_id: UUID = field(default_factory=uuid7)
    module: str = "tests.crash.child"

    def job(self, **options: Any) -> Path:
        """Describe the next attempt: an automatic retry of the one before."""
        self.try_number += 1
        self.ti_id = uuid7()
        return self.describe(**options)

    def describe(self, **options: Any) -> Path:
        """Write the job of the attempt as it stands."""
        job = {
            "dsn": self.dsn,
            "store": self.store,
            "execution": {"dag_id": "crash", "run_id": self.run_id, "task_id": "pipeline", "map_index": -1},
            "counters": {
                "ti_id": str(self.ti_id),
                "try_number": self.try_number,
                "max_tries": 9,
                "retries": 9,
                "clear_number": 0,
                "run_after": "2026-01-01T00:00:00+00:00",
            },
        }
        path = self.folder / f"job-{self.try_number}-{uuid7()}.json"
        path.write_text(json.dumps(job | options))
        return path

    def start(self, job: Path, failpoint: str | None = None) -> subprocess.Popen[str]:
        """Start an attempt."""
        environment = os.environ | {"AIFLOW_TEST_OUTSIDE": str(self.folder)}
        environment.pop("AIFLOW_FAILPOINT", None)
        if failpoint:
            environment["AIFLOW_FAILPOINT"] = failpoint
        return subprocess.Popen(
            [sys.executable, "-m", self.module, str(job)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, failpoint: str | None = None, **options: Any) -> tuple[int, str]:
        """Run the next attempt to its end; give its exit code and what it printed."""
        with running(self.start(self.job(**options), failpoint)) as process:
            output, _ = process.communicate(timeout=ATTEMPT_SECONDS)
        return process.returncode, output

    def outside(self, what: str) -> list[str]:
        """Read what the outside saw."""
        path = self.folder / what
        return path.read_text().splitlines() if path.exists() else []


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Give a process that is gone afterwards."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
