"""A process that runs a batch into an object store, and may be killed in it; its calls are counted outside."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.runtime import result_files
from airflow_aiflow.runtime.batches import Batch, key_reader, run_batch
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.map_rules import MapRules
from airflow_aiflow.runtime.prompt_template import PromptTemplate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3_folder import S3Folder
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing import DurableTask, ScriptedModels

#: Told on the command line.
TOLD: dict[str, Any] = {}


def answer(request: LlmRequest) -> str:
    """Count the call outside, and end the process where the test says so."""
    with (Path(TOLD["folder"]) / "calls").open("ab", buffering=0) as calls:
        calls.write(request.prompt.encode() + b"\n")
    if request.prompt == TOLD.get("at") and not TOLD["try"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"about {request.prompt}: " + "x" * 100


def body(flow: Flow) -> dict[str, Any]:
    """Run the batch."""
    batch = Batch(
        name="batch",
        read=lambda: ({"id": n} for n in range(TOLD["items"])),
        template=PromptTemplate("item {{ item.id }}"),
        params={},
        key_of=key_reader("id"),
        options={},
        rules=MapRules(max_workers=8, batch_commit=100),
        folder=S3Folder(S3Settings(**TOLD["s3"]), TOLD["s3"]["bucket"], "night/"),
        form=TOLD.get("form", "jsonl"),
        shard=None,
    )
    return run_batch(flow._session, flow._models, batch)


def main() -> None:
    """Run one attempt."""
    TOLD.update(json.loads(sys.argv[1]))
    result_files.FILE_BYTES = TOLD["file_bytes"]
    ledger = PostgresLedger.connect(TOLD["dsn"])
    task = DurableTask(
        ledger=ledger,
        clock=SystemClock(),
        run_id=TOLD["run_id"],
        models=ScriptedModels(answer),
        settings=FlowSettings(lease=LeaseRules(ttl=1.0, interval=0.3)),
        retries=9,
    )
    for _ in range(TOLD["try"]):
        task.retried()
    print(json.dumps(task.run(body)))
    ledger.close()


if __name__ == "__main__":
    main()
