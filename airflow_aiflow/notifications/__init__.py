"""Alerts, by Airflow's notifiers. Imported when first used: a DAG file that names none does not pay for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_aiflow.notifications.alert import Alert as Alert
    from airflow_aiflow.notifications.notifier import AiflowNotifier as AiflowNotifier

#: Public name -> module.
_HOMES = {"AiflowNotifier": "notifier", "Alert": "alert"}

__all__ = ["AiflowNotifier", "Alert"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
