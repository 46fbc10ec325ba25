"""
The figures that recovery sends through Airflow's stats.

To be called in a task process: in a triggerer Airflow does not set up the stats that tasks use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_aiflow.durable.ports import Stats
    from airflow_aiflow.durable.stall import StallKind


class RecoveryStats:
    """
    Tell of stalls and recoveries. No method raises.

    :param stats: where they go; ``None``: to Airflow's.
    """

    def __init__(self, stats: Stats | None = None) -> None:
        if stats is None:
            from airflow_aiflow.hooks.stats import AirflowStats

            stats = AirflowStats()
        self._stats = stats

    def stalled(self, kind: StallKind, decision: str, detected_after: float) -> None:
        """
        Tell of a find, once an incident and not once a pass.

        :param kind: what is wrong.
        :param decision: what follows: ``leave``, ``requeue``, ``quarantine`` or ``settle``.
        :param detected_after: seconds from the beginning of the stall to the find.
        """
        self._stats.count("aiflow.run.stalled", 1, {"kind": kind.value, "decision": decision})
        self._stats.timing("aiflow.recovery.detect_seconds", max(0.0, detected_after), {"kind": kind.value})

    def recovered(self, kind: StallKind) -> None:
        """
        Tell of a requeue that Airflow has taken.

        :param kind: what was wrong.
        """
        self._stats.count("aiflow.run.recovered", 1, {"kind": kind.value})

    def in_doubt(self, number: int) -> None:
        """
        Tell how many effects are in doubt now.

        :param number: of all executions.
        """
        self._stats.gauge("aiflow.effects.in_doubt", number, {})
