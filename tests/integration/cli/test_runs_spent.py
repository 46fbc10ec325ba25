"""`aiflow runs spent`: every generation and attempt counts, wasted calls too, and an unknown price is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from airflow_aiflow.cli.__main__ import main
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.exceptions import ModelOutputError
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask

Run = Callable[..., tuple[int, Any]]


class Models:
    """Answer at a price; misfit once, and know no price of one prompt."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Answer."""
        self.calls += 1
        usage = Usage("m", None, 100, 20, None if "free" in request.prompt else Decimal("0.004"))
        if "misfit" in request.prompt and self.calls == 1:
            raise ModelOutputError("misfit", usage=usage)
        return LlmAnswer("an answer", usage)

    def close(self) -> None:
        """Keep nothing open."""


@pytest.fixture(scope="module")
def ledger(postgres_server: PostgresServer) -> Iterator[tuple[str, PostgresLedger]]:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    opened = PostgresLedger.connect(dsn)
    yield dsn, opened
    opened.close()


@pytest.fixture
def run(ledger: tuple[str, PostgresLedger], capsys: pytest.CaptureFixture[str]) -> Run:
    def command(of: str, *, as_json: bool = True) -> tuple[int, Any]:
        code = main(["runs", "spent", of, "--dsn", ledger[0], *(["--json"] if as_json else [])])
        out = capsys.readouterr()
        return code, json.loads(out.out) if as_json else out.out + out.err

    return command


def a_task(ledger: tuple[str, PostgresLedger], run_id: str, **options: Any) -> DurableTask:
    return DurableTask(
        ledger=ledger[1], clock=SystemClock(), dag_id="billing", run_id=run_id, models=Models(), **options
    )


def test_every_call_that_was_paid_counts(ledger: tuple[str, PostgresLedger], run: Run) -> None:
    task = a_task(ledger, "first", on_clear="fresh")
    with pytest.raises(ModelOutputError):
        task.run(lambda flow: flow.llm("page", "misfit"))
    spent = task.run(lambda flow: (flow.llm("page", "misfit"), flow.llm("sum", "free"), flow.spent)[2])
    assert (spent.calls, spent.cost) == (3, Decimal("0.008"))
    task.cleared()
    task.run(lambda flow: flow.llm("page", "misfit"))
    a_task(ledger, "second", task_id="other").run(lambda flow: flow.llm("page", "p"))

    code, shown = run("billing/first")
    assert code == 0
    page, total = shown["steps"]
    assert (page["step"], page["calls"], page["cost"], page["wasted"], page["unpriced"]) == ("page", 3, "0.012", 1, 0)
    assert (total["step"], total["calls"], total["unpriced"]) == ("sum", 1, 1)
    assert shown["total"]["tokens_in"] == 400

    code, shown = run("billing")
    assert [(one["run_id"], one["calls"], one["cost"]) for one in shown["runs"]] == [
        ("second", 1, "0.004"),
        ("first", 4, "0.012"),
    ]
    assert (shown["total"]["calls"], shown["total"]["cost"]) == (5, "0.016")
    _, text = run("billing/first", as_json=False)
    assert "$0.0120 + 1 unpriced" in text


@pytest.mark.parametrize("of", ["nobody", "nobody/ever"])
def test_what_is_not_there(run: Run, of: str) -> None:
    code, said = run(of)
    assert (code, said["error"]) == (1, "RunNotFoundError")
