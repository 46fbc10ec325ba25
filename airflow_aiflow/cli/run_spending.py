"""Carry out `aiflow runs spent`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from airflow_aiflow.cli.output import OK, show, table
from airflow_aiflow.cli.run_address import RunAddress
from airflow_aiflow.cli.run_lists import not_found, open_runs
from airflow_aiflow.durable.run_view import SpendingView
from airflow_aiflow.exceptions import RunNotFoundError


def run_spent(options: argparse.Namespace) -> int:
    """
    Sum up what model calls cost: a DAG's by runs, a run's by steps.

    :raises RunNotFoundError: if the ledger knows neither.
    """
    of: RunAddress | str = options.OF
    with open_runs(options) as runs:
        if isinstance(of, str):
            views = runs.spending_of_runs(of, limit=options.limit)
            if not views:
                raise RunNotFoundError(f"the ledger knows no run of {of}: no durable task of it has run")
        else:
            views = runs.spending(*of)
            if not views and not runs.executions(*of):
                raise not_found(of)
    total = add_up(views)
    key = "runs" if isinstance(of, str) else "steps"
    value = {key: [_plain(view) for view in views], "total": _plain(total)}
    rows = [("RUN", "BEGAN") if key == "runs" else ("TASK", "STEP"), *map(_names, views), ("total", "")]
    figures = [("CALLS", "TOKENS IN", "TOKENS OUT", "COST", "WASTED"), *map(_figures, (*views, total))]
    text = table([(*left, *right) for left, right in zip(rows, figures, strict=True)])
    show(options, value, text if views else f"{of}: no model call")
    return OK


def add_up(views: Sequence[SpendingView]) -> SpendingView:
    """
    Sum views up.

    :param views: of runs or steps.
    """
    return SpendingView(
        "total",
        sum(view.calls for view in views),
        sum(view.tokens_in for view in views),
        sum(view.tokens_out for view in views),
        sum((view.cost for view in views), Decimal(0)),
        sum(view.unpriced for view in views),
        sum(view.wasted for view in views),
    )


def _names(view: SpendingView) -> tuple[str, str]:
    if view.task_id is not None:
        return (view.task_id, view.name)
    return (view.name, "" if view.began_at is None else f"{view.began_at:%Y-%m-%d %H:%M:%S}")


def _figures(view: SpendingView) -> tuple[str, ...]:
    # What is unknown is said, never counted as nothing.
    cost = f"${view.cost:.4f}" + (f" + {view.unpriced:,} unpriced" if view.unpriced else "")
    return (f"{view.calls:,}", f"{view.tokens_in:,}", f"{view.tokens_out:,}", cost, f"{view.wasted:,}")


def _plain(view: SpendingView) -> dict[str, Any]:
    named: dict[str, Any] = {}
    if view.task_id is not None:
        named = {"task_id": view.task_id, "step": view.name}
    elif view.began_at is not None:
        named = {"run_id": view.name, "began_at": view.began_at.isoformat()}
    return named | {
        "calls": view.calls,
        "tokens_in": view.tokens_in,
        "tokens_out": view.tokens_out,
        "cost": str(view.cost),
        "unpriced": view.unpriced,
        "wasted": view.wasted,
    }
