"""
Attempts that submit a provider's batch and are killed at a crash site.

``python -m tests.integration.llm.batch_workers FILE``: JSON with the ledger, and for each attempt its run, budget and
crash site. They are forked once all is imported. The last line printed is JSON: what each gave.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_aiflow.durable.failpoint import arm
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.runtime import llm_batches
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.crash.forks import Forks

#: Short, since who comes after a dead worker waits for its lease.
SETTINGS = FlowSettings(lease=LeaseRules(ttl=1.5, interval=0.5))

#: For so long nobody takes over a submission whose process can't be asked.
SUBMIT_SECONDS = 10.0

PROMPTS = [f"Sentence {n} of the story is short." for n in range(30)]


def a_task(dsn: str, run: str, budget: str) -> DurableTask:
    """Make the task of one run."""
    ledger = PostgresLedger.connect(dsn)
    return DurableTask(run_id=run, ledger=ledger, clock=SystemClock(), settings=SETTINGS, budget=budget)


def body(**options: Any) -> Callable[[Flow], Any]:
    """Make what the task does."""
    given: dict[str, Any] = {"poll_interval": 0.01, "model_settings": {"max_tokens": 40}} | options
    return lambda flow: flow.llm_batch("story", PROMPTS, **given)


def work(dsn: str, job: dict[str, Any]) -> str:
    """Be one attempt."""
    llm_batches.SUBMIT_SECONDS = SUBMIT_SECONDS
    arm(job["site"])
    a_task(dsn, job["run"], job["budget"]).run(body())
    return "ended"


def main() -> None:
    """Run the attempts of a file."""
    given = json.loads(Path(sys.argv[1]).read_text())
    for slow in ("airflow.providers.common.ai.batch.openai", "airflow.providers.common.ai.batch.output_schema"):
        importlib.import_module(slow)
    jobs = given["jobs"]
    forks: Forks[int] = Forks(lambda number, _: work(given["dsn"], jobs[number]), Path(sys.argv[1] + ".d"))
    ended = sorted(forks.run(range(len(jobs))), key=lambda one: one.job)
    print(json.dumps([one.value for one in ended]))


if __name__ == "__main__":
    main()
