"""
Several worker processes that call models over one ledger: ``python -m tests.integration.llm.paying_workers FILE``.

FILE is JSON: the ledger, how long a share lasts, and a list of workers. They are forked once all is imported, so that
they begin together. The last line printed is JSON: what each gave, ``None`` where it died.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.limit import Lent, Wish
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import BudgetExceededError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.runtime import limiter
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_limits import PostgresLimits
from airflow_aiflow.testing import DurableTask
from tests.crash.forks import Forks

#: Short, since who comes after a dead worker waits for its lease.
SETTINGS = FlowSettings(lease=LeaseRules(ttl=1.5, interval=0.5))


class Mortal(PydanticAICaller):
    """Die with the answer in hand, after so many."""

    def __init__(self, die_after: int | None) -> None:
        self._left = die_after

    def call(self, request: LlmRequest) -> LlmAnswer:
        answer = super().call(request)
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                os._exit(9)
        return answer


def a_task(dsn: str, job: dict[str, Any], models: PydanticAICaller) -> DurableTask:
    """Make the task of one worker."""
    return DurableTask(
        dag_id="batch",
        run_id=job["run"],
        map_index=job.get("map_index", -1),
        ledger=PostgresLedger.connect(dsn, pool_size=8),
        clock=SystemClock(),
        models=models,
        settings=SETTINGS,
        budget=job.get("budget"),
    )


def body(job: dict[str, Any]) -> Callable[[Flow], list[str]]:
    """Make what the task does: a map where it has threads, else one call after the other."""
    options: dict[str, Any] = {"model_settings": {"max_tokens": 40}, "rate_limit": job.get("limit")}

    def ask(flow: Flow) -> list[str]:
        if "threads" not in job:
            return [flow.llm("page", prompt, **options) for prompt in job["prompts"]]
        answers: list[str] = flow.llm_map("page", job["prompts"], max_workers=job["threads"], **options)
        return answers

    return ask


def work(dsn: str, job: dict[str, Any]) -> dict[str, Any]:
    """Be one worker."""
    moments: list[float] = []
    exchange = PostgresLimits.exchange

    def counted(self: PostgresLimits, name: str, worker: UUID, wish: Wish, *, ttl: float) -> Lent | None:
        moments.append(time.monotonic())
        return exchange(self, name, worker, wish, ttl=ttl)

    PostgresLimits.exchange = counted  # type: ignore[method-assign]
    began = time.monotonic()
    task = a_task(dsn, job, Mortal(job.get("die_after")))
    try:
        answers = task.run(body(job))
    except BudgetExceededError as error:
        return {"exceeded": str(error)}
    return {"answers": len(answers), "exchanges": len(moments), "seconds": time.monotonic() - began}


def main() -> None:
    """Run the workers of a file."""
    given = json.loads(Path(sys.argv[1]).read_text())
    if "share_seconds" in given:
        limiter.SHARE_SECONDS = given["share_seconds"]  # type: ignore[attr-defined]
    for slow in ("airflow.providers.common.ai.hooks.pydantic_ai", "pydantic_ai.models.openai"):
        importlib.import_module(slow)

    forks: Forks[int] = Forks(lambda number, _: work(given["dsn"], given["workers"][number]), Path(sys.argv[1] + ".d"))
    ended = sorted(forks.run(range(len(given["workers"]))), key=lambda one: one.job)
    print(json.dumps([one.value for one in ended]))


if __name__ == "__main__":
    main()
