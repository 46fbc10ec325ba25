"""
Run durable code in unit tests: in memory, without Airflow or a database, and with real serialisation.

``with flow() as f:`` gives one attempt. ``DurableTask`` gives several attempts of one execution, as retries and clears
would make them, over the same ledger: what was recorded is replayed.
"""

from __future__ import annotations

from airflow_aiflow.testing.clock import ManualClock
from airflow_aiflow.testing.host import TestingHost
from airflow_aiflow.testing.models import ScriptedModels
from airflow_aiflow.testing.stats import CollectedStats
from airflow_aiflow.testing.task import DurableTask, flow

__all__ = ["CollectedStats", "DurableTask", "ManualClock", "ScriptedModels", "TestingHost", "flow"]
