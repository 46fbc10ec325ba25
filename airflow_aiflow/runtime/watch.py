"""
Put together what stands beside an attempt: the gate before its starts, its heartbeat, its guard, the end of what hangs.

Each of them may end the process from outside the author's code. ``ending`` is the moment from which on none of them
does: the attempt writes its own end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.runtime.alarm import AlarmClock
from airflow_aiflow.runtime.deadline import Deadlines
from airflow_aiflow.runtime.gate import Gate
from airflow_aiflow.runtime.heartbeat import Heartbeat
from airflow_aiflow.runtime.interrupts import Interrupts
from airflow_aiflow.runtime.overrun import Overrun
from airflow_aiflow.runtime.vitals import Vitals

if TYPE_CHECKING:
    from airflow_aiflow.runtime.guard import Guard
    from airflow_aiflow.runtime.session import Services


class Watch:
    """
    Stand beside one attempt.

    :param services: what it works with.
    :param lease: that it holds.
    :param rules: of the lease.
    :param back_in: seconds after which a task comes back that is handed back because it hangs.
    """

    def __init__(self, services: Services, lease: Lease, rules: LeaseRules, *, back_in: float) -> None:
        self._services = services
        self._lease = lease
        self._rules = rules
        self._guard: Guard | None = None
        self._vitals = self._prepare_guard()
        patience, host, clock = services.settings.handover, services.host, services.clock
        self.gate = Gate(clock, self._vitals)
        self.heartbeat = Heartbeat(
            services.ledger, lease, rules, self.gate, host, clock, patience=patience, back_in=back_in
        )
        self._overrun = Overrun(self.gate, host, clock, patience=patience, back_in=back_in, pause=self._pause)

    def _prepare_guard(self) -> Vitals:
        if self._services.guard is None:
            return Vitals.private()
        from airflow_aiflow.runtime.guard import Guard

        try:
            vitals = Vitals.shared()
        except OSError as trouble:
            self._services.host.log(f"aiflow: this attempt has no guard: {trouble}", warning=True)
            return Vitals.private()
        self._guard = Guard(self._services.guard, vitals, self._services.host)
        return vitals

    def start(self) -> None:
        """Start to keep the lease; the take-over itself was the first beat."""
        self.heartbeat.start()
        if self._guard is not None:
            self._guard.start(self._lease, self._rules, self._services.settings.handover)

    def deadlines(self, alarms: AlarmClock, interrupts: Interrupts) -> Deadlines:
        """
        Make the deadlines of this attempt, and take their signal.

        :param alarms: who rings.
        :param interrupts: where signals may raise.
        """
        deadlines = Deadlines(alarms, interrupts, self._overrun.begin, self._vitals, self.gate.depth)
        deadlines.install()
        self._overrun.watch(deadlines)
        return deadlines

    def ending(self) -> None:
        """Have nobody end the process from here on, and take a lost lease for the attempt's own doing."""
        self._overrun.close()
        self.heartbeat.ending()

    def close(self) -> None:
        """Stop all of it."""
        self._overrun.close()
        self.heartbeat.stop()
        if self._guard is not None:
            self._guard.close()

    def _pause(self, why: str) -> bool:
        self.heartbeat.ending()
        reason = self._services.host.redact(why)
        return self._services.ledger.finish(self._lease, ExecutionState.PAUSED, result=None, reason=reason)
