"""The rules of the lease: how long, how often, and when an owner counts as gone."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_aiflow.exceptions import AiflowConfigError


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """
    Hold the lease's two durations.

    :param ttl: seconds for which a heartbeat gives the right to work.
    :param interval: seconds between two heartbeats.
    :raises AiflowConfigError: if the ttl is not more than twice the interval: one lost beat would cost the lease.
    """

    ttl: float = 30.0
    interval: float = 10.0

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise AiflowConfigError(f"heartbeat_interval must be more than 0 seconds, got {self.interval:g}")
        if self.ttl <= 2 * self.interval:
            raise AiflowConfigError(
                f"lease_ttl ({self.ttl:g} s) must be more than twice heartbeat_interval ({self.interval:g} s): one "
                f"lost heartbeat would cost the lease. Set [aiflow] lease_ttl to {3 * self.interval:g} or more"
            )

    @classmethod
    def of_ttl(cls, ttl: float) -> LeaseRules:
        """
        Make the rules of one task's own ``lease=``: the heartbeat is a third of it.

        :param ttl: seconds.
        """
        return cls(ttl=ttl, interval=ttl / 3)
