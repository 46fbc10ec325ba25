"""Operators. Each is imported when it is first used: what a DAG file does not name, it does not pay for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_aiflow.operators.agent import DurableAgentOperator as DurableAgentOperator
    from airflow_aiflow.operators.batch import BatchInferenceOperator as BatchInferenceOperator
    from airflow_aiflow.operators.batch import shards as shards
    from airflow_aiflow.operators.effect import EffectOperator as EffectOperator
    from airflow_aiflow.operators.llm import DurableLLMOperator as DurableLLMOperator
    from airflow_aiflow.operators.requeue import RequeueRunsOperator as RequeueRunsOperator

#: Public name -> module.
_HOMES = {
    "BatchInferenceOperator": "batch",
    "DurableAgentOperator": "agent",
    "DurableLLMOperator": "llm",
    "EffectOperator": "effect",
    "RequeueRunsOperator": "requeue",
    "shards": "batch",
}

__all__ = [
    "BatchInferenceOperator",
    "DurableAgentOperator",
    "DurableLLMOperator",
    "EffectOperator",
    "RequeueRunsOperator",
    "shards",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
