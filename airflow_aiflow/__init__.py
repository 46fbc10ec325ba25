"""Crash-safe AI pipelines for Apache Airflow. The public names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_aiflow.decorators.functions import effect as effect
    from airflow_aiflow.decorators.functions import step as step
    from airflow_aiflow.decorators.typed import durable as durable
    from airflow_aiflow.durable.artifact import ArtifactRef as ArtifactRef
    from airflow_aiflow.durable.effect_context import EffectContext as EffectContext
    from airflow_aiflow.durable.job import JobStatus as JobStatus
    from airflow_aiflow.durable.reconcile import CannotTell as CannotTell
    from airflow_aiflow.durable.reconcile import DidNotHappen as DidNotHappen
    from airflow_aiflow.durable.reconcile import Happened as Happened
    from airflow_aiflow.durable.reconcile import Intent as Intent
    from airflow_aiflow.durable.reconcile import StillPending as StillPending
    from airflow_aiflow.exceptions import EffectNotAppliedError as EffectNotAppliedError
    from airflow_aiflow.operators.once import once as once
    from airflow_aiflow.runtime.async_flow import AsyncFlow as AsyncFlow
    from airflow_aiflow.runtime.current import current_flow as current_flow
    from airflow_aiflow.runtime.flow import Flow as Flow
    from airflow_aiflow.runtime.vectors import read_vectors as read_vectors

__version__ = "0.1.0"

#: Public name -> module. Lazy, so that a DAG file pays for nothing that it does not use.
_HOMES = {
    "ArtifactRef": "durable.artifact",
    "AsyncFlow": "runtime.async_flow",
    "EffectContext": "durable.effect_context",
    "EffectNotAppliedError": "exceptions",
    "Flow": "runtime.flow",
    "current_flow": "runtime.current",
    "read_vectors": "runtime.vectors",
    "CannotTell": "durable.reconcile",
    "DidNotHappen": "durable.reconcile",
    "Happened": "durable.reconcile",
    "Intent": "durable.reconcile",
    "StillPending": "durable.reconcile",
    "JobStatus": "durable.job",
    "effect": "decorators.functions",
    "once": "operators.once",
    "step": "decorators.functions",
    "durable": "durable",  # the sub-package itself, which is the decorator too
}

__all__ = [
    "ArtifactRef",
    "AsyncFlow",
    "CannotTell",
    "DidNotHappen",
    "EffectContext",
    "EffectNotAppliedError",
    "Flow",
    "Happened",
    "Intent",
    "JobStatus",
    "StillPending",
    "current_flow",
    "durable",
    "effect",
    "once",
    "read_vectors",
    "step",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{home}")
    return module if home == name else getattr(module, name)
