"""What a clear would do, from Airflow's list, the ledger's state and the DAG's edges."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_aiflow.cli.clear_table import as_text
from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.clear_preview import NEVER_DURABLE, Instance, Preview, as_json, preview
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.run_view import EffectCount, ExecutionView, OpenQuestion

DONE = ExecutionView(
    execution_pk=1,
    execution=ExecutionId("d", "r", "book", 0),
    state=ExecutionState.SUCCEEDED,
    generation=1,
    heard=True,
    attempt=1,
    sign="first",
    on_clear="auto",
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    finished_at=datetime(2026, 1, 1, tzinfo=UTC),
    pause_reason=None,
    live=False,
    steps=2,
    calls=1,
    cost=Decimal("0.01"),
    effects=(EffectCount("mail", "succeeded", 1),),
)
EDGES = {"split": ["book"], "book": ["report"], "report": []}


def view(map_index: int = 0, **parts: Any) -> ExecutionView:
    return replace(DONE, execution=ExecutionId("d", "r", "book", map_index), **parts)


def of(*views: ExecutionView, above: bool = False, wish: OnClear | None = None) -> Preview:
    instances = [Instance("book", one.execution.map_index, "success") for one in views]
    if above:
        instances.append(Instance("split", -1, "success"))
    return preview(instances, views, downstream=EDGES, wish=wish, dag_id="d")


@pytest.mark.parametrize(
    ("parts", "above", "wish", "verdict"),
    [
        ({}, False, None, "succeeded -> new generation"),
        ({}, True, None, "succeeded -> resume (below the top of the clear)"),
        ({"heard": False}, False, None, "succeeded -> resume (Airflow did not hear of the success)"),
        ({"on_clear": "resume"}, False, None, "succeeded -> resume"),
        ({"on_clear": "fresh"}, True, None, "succeeded -> new generation"),
        ({"on_clear": None}, False, None, "succeeded -> new generation"),
        ({}, True, "fresh", "succeeded -> new generation"),
        ({}, False, "resume", "succeeded -> resume"),
        ({"state": ExecutionState.FAILED, "heard": False}, False, None, "failed -> resume"),
        ({"state": ExecutionState.PAUSED, "heard": False}, False, None, "paused -> resume"),
        ({"state": ExecutionState.RUNNING, "heard": False, "live": True}, False, None, "running -> resume"),
        ({"state": ExecutionState.RUNNING, "heard": False}, False, None, "interrupted -> resume"),
    ],
)
def test_a_verdict(parts: dict[str, Any], above: bool, wish: OnClear | None, verdict: str) -> None:
    [line] = [one for one in of(view(**parts), above=above, wish=wish).lines if one.task_id == "book"]
    assert line.verdict == verdict
    assert line.starts_anew is verdict.endswith("new generation")


def test_map_indexes_of_one_verdict_are_one_line() -> None:
    found = of(view(0), view(1), view(2, state=ExecutionState.FAILED, heard=False), view(3))
    lines = {line.verdict: line.indexes for line in found.lines}
    assert lines == {"succeeded -> new generation": [0, 1, 3], "failed -> resume": [2]}
    assert (found.calls, found.cost) == (3, Decimal("0.03"))
    text = as_text(found, None)
    assert "book[0..1, 3]  succeeded -> new generation  model calls run again 3 (about $0.03)" in text
    assert "effects kept: 3 mail" in text
    assert as_json(found)["model_calls_again"] == 3


def test_what_is_far_below_is_below() -> None:
    found = preview([Instance("split", -1, "success"), Instance("report", -1, "success")], [], downstream=EDGES)
    assert {line.task_id: line.below for line in found.lines} == {"split": False, "report": True}
    assert {line.verdict for line in found.lines} == {NEVER_DURABLE}


def test_a_call_in_hand_is_no_doubt() -> None:
    begun = (EffectCount("pay", "intended", 1, (7,)),)
    assert of(view(state=ExecutionState.RUNNING, heard=False, live=True, effects=begun)).doubts == []
    assert of(view(state=ExecutionState.RUNNING, heard=False, effects=begun)).doubts == [(7, "pay")]
    doubt = (EffectCount("pay", "in_doubt", 1, (7,)),)
    found = of(view(state=ExecutionState.PAUSED, heard=False, effects=doubt))
    assert "in doubt  #7 pay" in as_text(found, None)


def test_prices_that_are_unknown_are_said_to_be() -> None:
    assert "model calls run again 1 (price unknown)" in as_text(of(view(unpriced=1, cost=Decimal(0))), None)
    some = of(view(0), view(1, unpriced=1, cost=Decimal(0)))
    assert "model calls run again 2 (about $0.01, some prices unknown)" in as_text(some, None)


def test_the_other_way_is_named() -> None:
    assert "--resume (0 model calls again)" in as_text(of(view()), None)
    below = as_text(of(view(), above=True), None)
    assert "model calls run again 0 to 1: those whose input changed above" in below
    assert "--fresh (model calls again: 1 (about $0.01))" in below
    assert "instead" not in as_text(of(view(), wish="fresh"), "fresh")


def test_a_question_is_listed() -> None:
    asked = view(state=ExecutionState.PAUSED, heard=False, questions=(OpenQuestion(9, "ask", "Send it?"),))
    assert "waiting   #9 Send it?" in as_text(of(asked), None)
