"""Lay a preview of a clear out for people."""

from __future__ import annotations

from decimal import Decimal

from airflow_aiflow.cli.output import table
from airflow_aiflow.cli.run_address import task_names
from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.clear_preview import Line, Preview


def as_text(found: Preview, wish: OnClear | None) -> str:
    """
    Give a preview as a table.

    :param found: the preview.
    :param wish: what the person asks of the clear.
    """
    rows = [(_names(line), line.verdict, _calls(line), _effects(line)) for line in found.lines]
    below = [
        ("assets", f"{uri} will be emitted again" + (f" -> triggers {_dags(count)}" if count else ""))
        for uri, count in found.assets
    ]
    below.append(("in doubt", ", ".join(f"#{number} {name}" for number, name in found.doubts) or "none"))
    if found.waiting:
        below.append(("waiting", ", ".join(f"#{number} {subject}" for number, subject in found.waiting)))
    if wish is None and found.calls:
        below.append(("instead", "--resume (0 model calls again)"))
    if wish is None and not found.calls and any(line.calls for line in found.lines):
        calls = sum(line.calls for line in found.lines)
        below.append(("instead", f"--fresh (model calls again: {_money_of(calls, found.lines)})"))
    return f"{table(rows)}\n{table(below)}"


def _calls(line: Line) -> str:
    if not line.durable:
        return ""
    if line.starts_anew:
        return f"model calls run again {_money_of(line.calls, [line])}"
    if line.below and line.calls:
        return f"model calls run again 0 to {line.calls}: those whose input changed above"
    return "model calls run again 0"


def _money_of(calls: int, lines: list[Line]) -> str:
    cost, unpriced = sum((line.cost for line in lines), Decimal(0)), sum(line.unpriced for line in lines)
    if not calls:
        return "0"
    if unpriced == calls:
        return f"{calls} (price unknown)"
    return f"{calls} (about ${cost:.2f}{', some prices unknown' if unpriced else ''})"


def _effects(line: Line) -> str:
    if not line.kept:
        return ""
    return "effects kept: " + ", ".join(f"{count} {name}" for name, count in sorted(line.kept.items()))


def _dags(count: int) -> str:
    return f"{count} DAG" if count == 1 else f"{count} DAGs"


def _names(line: Line) -> str:
    return task_names((line.task_id, index) for index in line.indexes)
