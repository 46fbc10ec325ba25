"""A process that embeds a list and may be killed in it; the outside counts the texts it was given in a file."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.vectors import read_vectors
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing import DurableTask

#: Told on the command line.
TOLD: dict[str, Any] = {}


class CountedEncoder:
    """Count each text outside, a batch in one write, and end the process where the test says so."""

    name = "counted/1"

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """Give each text's own vector."""
        with (Path(TOLD["folder"]) / "calls").open("ab", buffering=0) as calls:
            calls.write("".join(f"{text}\n" for text in texts).encode())
        if TOLD.get("at") in texts:
            os.kill(os.getpid(), signal.SIGKILL)
        return [vector(text) for text in texts]


def vector(text: str) -> list[float]:
    """Give a vector that only this text has."""
    return [float(byte) for byte in hashlib.sha256(text.encode()).digest()[:6]]


def main() -> None:
    """Run one attempt."""
    TOLD.update(json.loads(sys.argv[1]))
    ledger = PostgresLedger.connect(TOLD["dsn"])
    task = DurableTask(
        ledger=ledger,
        store=S3ArtifactStore(S3Settings(**TOLD["store"])),
        clock=SystemClock(),
        run_id=TOLD["run_id"],
        settings=FlowSettings(lease=LeaseRules(ttl=1.0, interval=0.3)),
        retries=9,
    )
    for _ in range(TOLD["try"]):
        task.retried()

    def body(flow: Any) -> list[list[float]]:
        ref = flow.embed("vectors", TOLD["texts"], encoder=CountedEncoder(), **TOLD["options"])
        return [list(map(float, row)) for row in read_vectors(ref)]

    print(json.dumps(task.run(body)))
    ledger.close()


if __name__ == "__main__":
    main()
