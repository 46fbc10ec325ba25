"""Carry out `aiflow runs show` and `aiflow runs steps`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from airflow_aiflow.cli.ledger_address import find_ledger, stack_in_mind
from airflow_aiflow.cli.output import OK, show, table
from airflow_aiflow.cli.run_address import RunAddress, task_names
from airflow_aiflow.durable.run_view import ExecutionView, StepView
from airflow_aiflow.exceptions import RunNotFoundError
from airflow_aiflow.storage.postgres_runs import PostgresRuns


@contextlib.contextmanager
def open_runs(options: argparse.Namespace) -> Iterator[PostgresRuns]:
    """
    Open the ledger for reading runs, and give its connections back.

    :param options: with ``dsn`` and ``home``.
    :raises AiflowConfigError: if nothing says where the ledger is.
    :raises LedgerUnavailableError: if it does not answer.
    """
    with stack_in_mind(options), contextlib.closing(PostgresRuns.connect(find_ledger(options))) as runs:
        yield runs


def not_found(run: RunAddress) -> RunNotFoundError:
    """
    Say that the ledger knows nothing of a run.

    :param run: which one.
    """
    return RunNotFoundError(
        f"the ledger knows nothing of run {run.run_id} of {run.dag_id}: no durable task of it has run, or the ids are "
        f"spelled otherwise (DAG_ID/RUN_ID, as Airflow shows them)"
    )


def run_show(options: argparse.Namespace) -> int:
    """
    Show the executions of a run.

    :raises RunNotFoundError: if there are none.
    """
    with open_runs(options) as runs:
        views = runs.executions(*options.RUN)
    if not views:
        raise not_found(options.RUN)
    value = {"dag_id": options.RUN.dag_id, "run_id": options.RUN.run_id, "executions": [_plain(view) for view in views]}
    value["total"] = _total(views)
    show(options, value, _text(options.RUN, views))
    return OK


def run_steps(options: argparse.Namespace) -> int:
    """
    List the recorded steps of a run.

    :raises RunNotFoundError: if the ledger does not know the run.
    """
    task = options.task
    with open_runs(options) as runs:
        steps = runs.steps(
            *options.RUN,
            task_id=None if task is None else task.task_id,
            map_index=None if task is None else task.map_index,
            limit=options.limit,
        )
        if not steps and not runs.executions(*options.RUN):
            raise not_found(options.RUN)
    rows = [("TASK", "STEP", "KIND", "RAN AT", "ATTEMPT", "SECONDS", "TOKENS", "COST"), *map(_row, steps)]
    show(options, {"steps": [_step(step) for step in steps]}, table(rows) if steps else "no step is recorded")
    return OK


def _text(run: RunAddress, views: list[ExecutionView]) -> str:
    calls, cost = sum(view.calls for view in views), sum((view.cost for view in views), Decimal(0))
    head = f"{run}: {len(views)} executions, {sum(view.steps for view in views)} steps recorded, {calls} model calls"
    rows: list[tuple[str, ...]] = [
        ("TASK", "STATE", "GENERATION", "ATTEMPT", "STEPS", "MODEL CALLS", "COST", "EFFECTS")
    ]
    for view in views:
        name = task_names([(view.execution.task_id, view.execution.map_index)])
        effects = ", ".join(f"{one.count} {one.name} {one.state.replace('_', ' ')}" for one in view.effects)
        numbers = (view.generation, f"{view.attempt} ({view.sign})", view.steps, view.calls)
        rows.append((name, _state(view), *map(str, numbers), _money(view.cost, view.unpriced), effects))
    notes = [f"#{one.number} waits for a person: {one.subject}" for view in views for one in view.questions]
    unpriced = sum(view.unpriced for view in views)
    return "\n".join([f"{head}, {_money(cost, unpriced)}", table(rows), *_labels(views), *notes])


def _labels(views: list[ExecutionView]) -> list[str]:
    """Say a task's labels once, however many map indexes it has."""
    found = {view.execution.task_id: view.labels for view in views if view.labels}
    return [
        f"labels of {task}: " + ", ".join(f"{name}={text}" for name, text in each.items())
        for task, each in found.items()
    ]


def _total(views: list[ExecutionView]) -> dict[str, Any]:
    return {
        "steps": sum(view.steps for view in views),
        "model_calls": sum(view.calls for view in views),
        "tokens_in": sum(view.tokens_in for view in views),
        "tokens_out": sum(view.tokens_out for view in views),
        "cost": str(sum((view.cost for view in views), Decimal(0))),
        "unpriced": sum(view.unpriced for view in views),
    }


def _state(view: ExecutionView) -> str:
    if view.state == "running":
        return "running" if view.live else "interrupted"
    if view.state == "paused":
        return f"paused: {view.pause_reason}" if view.pause_reason else "paused"
    return view.state.value + (", heard" if view.heard else "")


def _money(cost: Decimal | None, unpriced: int) -> str:
    return f"${cost or 0:.4f}" + (f" + {unpriced} unpriced" if unpriced else "")


def _plain(view: ExecutionView) -> dict[str, Any]:
    return {
        "task_id": view.execution.task_id,
        "map_index": view.execution.map_index,
        "state": view.state.value,
        "live": view.live,
        "heard": view.heard,
        "pause_reason": view.pause_reason,
        "generation": view.generation,
        "attempt": view.attempt,
        "sign": view.sign,
        "on_clear": view.on_clear,
        "started_at": _iso(view.started_at),
        "finished_at": _iso(view.finished_at),
        "steps": view.steps,
        "model_calls": view.calls,
        "tokens_in": view.tokens_in,
        "tokens_out": view.tokens_out,
        "cost": str(view.cost),
        "unpriced": view.unpriced,
        "effects": [
            {"name": one.name, "state": one.state, "count": one.count, "open": list(one.open_numbers)}
            for one in view.effects
        ],
        "questions": [{"number": one.number, "kind": one.kind, "subject": one.subject} for one in view.questions],
        "labels": dict(view.labels),
    }


def _step(step: StepView) -> dict[str, Any]:
    return {
        "task_id": step.task_id,
        "map_index": step.map_index,
        "kind": step.kind,
        "name": step.name,
        "depth": step.depth,
        "attempt": step.attempt,
        "ended_at": _iso(step.ended_at),
        "duration_ms": step.duration_ms,
        "model": step.model,
        "tokens_in": step.tokens_in,
        "tokens_out": step.tokens_out,
        "cost": None if step.cost is None else str(step.cost),
        "size": step.size,
    }


def _row(step: StepView) -> tuple[str, ...]:
    paid = step.tokens_in is not None
    return (
        task_names([(step.task_id, step.map_index)]),
        "  " * step.depth + step.name,
        step.kind,
        f"{step.ended_at:%Y-%m-%d %H:%M:%S}",
        str(step.attempt),
        f"{step.duration_ms / 1000:.1f}",
        f"{step.tokens_in:,}+{step.tokens_out:,}" if paid else "",
        ("price unknown" if step.cost is None else f"${step.cost:.4f}") if paid else "",
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
