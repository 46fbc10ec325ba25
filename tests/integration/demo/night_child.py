"""A process that does what the task of the nightly DAG does, on a ledger and a store of the test's own."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

from airflow_aiflow.demo.encoder import SentenceEncoder
from airflow_aiflow.demo.paragraphs import read_lines
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.vectors import read_vectors
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing import DurableTask


def main() -> None:
    """Run one attempt, and print its log and a few of its vectors."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    ledger = PostgresLedger.connect(told["dsn"])
    task = DurableTask(
        ledger=ledger,
        store=S3ArtifactStore(S3Settings(**told["store"])),
        clock=SystemClock(),
        dag_id="nightly_embeddings",
        run_id=told["run_id"],
        settings=FlowSettings(lease=LeaseRules(ttl=1.0, interval=0.3)),
        retries=9,
    )
    for _ in range(told["try"]):
        task.retried()

    def body(flow: Any) -> list[list[float]]:
        paragraphs = flow.step("read", read_lines, told["input"])
        encoder = SentenceEncoder(told["counted_in"])
        ref = flow.embed(
            "paragraph", paragraphs, encoder=encoder, batch_size=8, max_workers=2, reuse=timedelta(days=30)
        )
        return [[float(number) for number in row] for row in read_vectors(ref)]

    vectors = task.run(body)
    print(json.dumps({"vectors": vectors, "log": task.host.lines}))
    ledger.close()


if __name__ == "__main__":
    main()
