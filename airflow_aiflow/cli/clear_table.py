"""Lay a preview of a clear out, for people and for programs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from airflow_aiflow.cli.clear_preview import Line, Preview, names_of
from airflow_aiflow.cli.output import table
from airflow_aiflow.durable.attempt import OnClear


def as_json(found: Preview) -> dict[str, Any]:
    """
    Give a preview as plain values; amounts are texts.

    :param found: the preview.
    """
    return {
        "tasks": [
            {
                "task_id": line.task_id,
                "map_indexes": line.indexes,
                "durable": line.durable,
                "verdict": line.verdict,
                "new_generation": line.starts_anew,
                "steps_recorded": line.steps,
                "model_calls_recorded": line.calls,
                "model_calls_again": line.calls if line.starts_anew else 0,
                "cost_again": str(line.cost if line.starts_anew else Decimal(0)),
                "effects_kept": dict(line.kept),
            }
            for line in found.lines
        ],
        "model_calls_again": found.calls,
        "cost_again": str(found.cost),
        "in_doubt": [{"number": number, "effect": name} for number, name in found.doubts],
        "waiting": [{"number": number, "subject": subject} for number, subject in found.waiting],
        "assets": [{"uri": uri, "triggers_dags": count} for uri, count in found.assets],
    }


def as_text(found: Preview, wish: OnClear | None) -> str:
    """
    Give a preview as a table.

    :param found: the preview.
    :param wish: what the person asks of the clear.
    """
    rows = [(names_of(line), line.verdict, _calls(line), _effects(line)) for line in found.lines]
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
