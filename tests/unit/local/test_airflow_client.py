"""A log of Airflow's as text: of an error it says which one it was."""

from __future__ import annotations

from airflow_aiflow.local.airflow_client import _line


def test_a_line_names_the_error() -> None:
    detail = [{"exc_type": "LedgerSchemaError", "exc_value": "newer than this code", "frames": []}]
    assert _line({"event": "Task failed with exception", "error_detail": detail}) == (
        "Task failed with exception: LedgerSchemaError: newer than this code"
    )
    assert _line({"event": "aiflow: done", "level": "info"}) == "aiflow: done"
    assert _line({"event": "aiflow: done", "error_detail": None}) == "aiflow: done"
