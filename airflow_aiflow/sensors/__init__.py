"""Sensors. Imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_aiflow.sensors.zombie import ZombieRunSensor as ZombieRunSensor

__all__ = ["ZombieRunSensor"]


def __getattr__(name: str) -> Any:
    if name != "ZombieRunSensor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from airflow_aiflow.sensors.zombie import ZombieRunSensor

    return ZombieRunSensor
