"""
Find stalled runs and bring them home. ``recovery_dag`` makes the DAG that does so.

Below it, nothing here imports Airflow: the command line uses the same looks and deeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_aiflow.recovery.dag import recovery_dag as recovery_dag

__all__ = ["recovery_dag"]


def __getattr__(name: str) -> Any:
    if name != "recovery_dag":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from airflow_aiflow.recovery.dag import recovery_dag

    return recovery_dag
