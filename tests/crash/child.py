"""
One attempt in a process of its own, to be killed: ``python -m tests.crash.child JOB``.

JOB is a JSON file: the ledger's DSN, the store, the ids and counters of the attempt, the scenario, and the folder in
which every call that reaches the outside leaves one line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.attempt import Attempt, Counters
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptSuperseded, EffectInDoubtError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.process import this_owner
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing import TestingHost

#: Exit codes by which the parent reads how the attempt ended.
IN_DOUBT, SUPERSEDED = 3, 4

OUTSIDE = Path(os.environ.get("AIFLOW_TEST_OUTSIDE", "."))


def seen(what: str, line: str) -> None:
    """Leave one line outside, as a target would that got a call."""
    with (OUTSIDE / what).open("a") as file:
        file.write(line + "\n")


def outside_lines(what: str) -> list[str]:
    """Read what the outside saw."""
    path = OUTSIDE / what
    return path.read_text().splitlines() if path.exists() else []


def hold_until_released(name: str) -> None:
    """Say that this place is reached and stay until the parent lets go, by a named pipe."""
    pipe = OUTSIDE / f"{name}.pipe"
    if pipe.exists():
        seen("reached", name)
        pipe.read_text()


class Models:
    """Answer and bill outside."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Bill one call."""
        seen("bills", request.prompt)
        hold_until_released("bill")
        return LlmAnswer(f"answer to {request.prompt}", Usage(model="m", response_id="r", tokens_in=3, tokens_out=4))

    def close(self) -> None:
        """Keep nothing open."""


def compute(value: str) -> str:
    """Compute outside, so that each run is seen; large enough for the store."""
    seen("computed", value)
    return value * 4000


def send(ctx: EffectContext, to: str) -> str:
    """Send outside."""
    seen("sent", f"{ctx.idempotency_key} {to}")
    hold_until_released("send")
    return f"sent to {to}"


def pipeline(policy: str, *, pause_between: bool = False) -> Callable[[Flow], dict[str, Any]]:
    """Give a body with one of each; it may stop in code of the author's, between two units."""

    def body(flow: Flow) -> dict[str, Any]:
        text = flow.step("compute", compute, "abcde")
        answer = flow.llm("ask", "What is it?")
        if pause_between:
            hold_until_released("between")
        sent = flow.effect("send", send, "a@example.com", key="one", on_in_doubt=policy)
        return {"length": len(text), "answer": answer, "sent": sent}

    return body


def read_attempt(job: dict[str, Any]) -> Attempt:
    """Build the attempt that the parent describes."""
    ids, counters = job["execution"], job["counters"]
    owner = this_owner(counters["ti_id"])
    if job.get("elsewhere"):
        owner = replace(owner, hostname="another-machine", boot_id="another")
    return Attempt(
        execution=ExecutionId(ids["dag_id"], ids["run_id"], ids["task_id"], ids["map_index"]),
        counters=Counters(
            ti_id=UUID(counters["ti_id"]),
            try_number=counters["try_number"],
            max_tries=counters["max_tries"],
            retries=counters["retries"],
            clear_number=counters["clear_number"],
            run_after=datetime.fromisoformat(counters["run_after"]),
        ),
        owner=owner,
    )


class DyingHost(TestingHost):
    """End the process for real when the watchdog says so."""

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> None:
        """Leave a line and go."""
        seen("ended", why)
        os._exit(SUPERSEDED)


def main(path: str) -> int:
    """Run one attempt."""
    job = json.loads(Path(path).read_text())
    store = S3ArtifactStore(S3Settings(**job["store"]))
    settings = FlowSettings(
        lease=LeaseRules(ttl=job.get("ttl", 3.0), interval=job.get("interval", 0.5)),
        handover=job.get("handover", 30.0),
        ledger_patience=job.get("patience", 5.0),
        spool_dir=OUTSIDE / "spool",
    )
    ledger = PostgresLedger.connect(job["dsn"])
    body = pipeline(job.get("policy", "hold"), pause_between=job.get("pause_between", False))
    services = Services(
        ledger=ledger,
        store=lambda: store,
        host=DyingHost(),
        settings=settings,
        clock=SystemClock(),
        models=Models,
    )
    try:
        result = run_attempt(read_attempt(job), services, body)
    except EffectInDoubtError as error:
        seen("doubts", str(error))
        return IN_DOUBT
    except AttemptSuperseded as signal:
        seen("superseded", str(signal))
        return SUPERSEDED
    finally:
        ledger.close()
    seen("results", json.dumps(result, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
