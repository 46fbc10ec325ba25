"""
Renew the lease, see that it is lost or asked for, and end an attempt that is superseded.

The watchdog never kills between a call and its record: it ends the process at once between units, else when what is in
hand is recorded or has had its time.
"""

from __future__ import annotations

import threading

from airflow_aiflow.durable.execution import Asked, Lease
from airflow_aiflow.durable.hold import CANCELLED, HELD
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.ports import Clock, Host, Ledger
from airflow_aiflow.exceptions import AttemptCancelled, AttemptParked, FlowSignal, LedgerError
from airflow_aiflow.runtime.gate import Gate

#: How often the watchdog looks whether the unit in hand is recorded.
WATCH_SECONDS = 0.1

#: Seconds after its own timeout that a unit in hand gets to be recorded: what an overrun call gets as well.
RECORD_SECONDS = 10.0

#: Most seconds between two beats, however long the lease is: a person's wish comes with the beat.
WISH_SECONDS = 10.0


def as_signal(asked: Asked | None, *, back_in: float) -> FlowSignal | None:
    """
    Say as what an attempt ends that does what a person wishes of its run.

    :param asked: the wish.
    :param back_in: seconds after which a held attempt looks again, where nobody calls it before.
    """
    if asked is None:
        return None
    if asked == "cancel":
        return AttemptCancelled(CANCELLED)
    return AttemptParked(back_in, HELD)


class Heartbeat:
    """
    Beat from a thread of its own.

    :param back_in: seconds after which an attempt comes back whose run is held.
    :param patience: seconds that a unit in hand without a timeout of its own gets once the attempt is superseded.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        rules: LeaseRules,
        gate: Gate,
        host: Host,
        clock: Clock,
        *,
        patience: float,
        back_in: float,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._rules = rules
        self._gate = gate
        self._host = host
        self._clock = clock
        self._patience = patience
        self._back_in = back_in
        self._ending = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aiflow-heartbeat", daemon=True)

    def start(self) -> None:
        """Start beating; the take-over itself was the first beat."""
        now = self._clock.monotonic()
        self._gate.vitals.beaten(now)
        self._gate.leased(now + self._rules.ttl, self.beat)
        self._thread.start()

    def ending(self) -> None:
        """
        Take a lost lease for the attempt's own doing from here on: it is about to give it back.

        Else a beat between that and ``stop`` would end the process of an attempt that has ended well.
        """
        self._ending = True
        self._gate.vitals.ending()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(timeout=self._rules.interval)

    def beat(self) -> bool:
        """
        Beat once.

        :return: whether the lease is still ours, as far as the ledger could be asked.
        """
        asked = self._clock.monotonic()
        try:
            beat = self._ledger.beat(
                self._lease,
                ttl=self._rules.ttl,
                idle=self._gate.idle,
                step=self._gate.step,
                step_timeout=self._gate.step_timeout,
            )
        except Exception:  # whatever it is, the thread must outlive it
            # The next beat tries again; that the lease may lapse meanwhile is checked by every start, in the ledger.
            return True
        if beat.held:
            self._gate.vitals.beaten(asked)
            self._gate.leased(asked + self._rules.ttl, self.beat)
        if self._ending:
            return beat.held
        if not beat.held:
            self._gate.supersede("a later attempt of this task took over")
        elif beat.wanted:
            self._gate.supersede("a later attempt of this task waits for this one to let go")
        else:
            self.told(beat.asked)
        return beat.held

    def told(self, asked: Asked | None) -> None:
        """
        Do what a person wishes of the run, at the next start.

        :param asked: the wish as it stands.
        """
        self._gate.ask(as_signal(asked, back_in=self._back_in))

    def _run(self) -> None:
        held = True
        while not self._stop.wait(min(self._rules.interval, WISH_SECONDS)):
            held = self.beat()
            if self._gate.superseded is not None:
                self._end(held)
                return

    def _end(self, held: bool) -> None:
        began = last = self._clock.monotonic()
        while not self._gate.quiet and self._clock.monotonic() < self._patient_until(began):
            if self._stop.wait(WATCH_SECONDS):
                return
            if held and self._clock.monotonic() - last >= self._rules.interval:
                held, last = self.beat(), self._clock.monotonic()
        if self._stop.is_set() or self._ending:
            return
        self._gate.vitals.ending()  # this process ends itself; its guard need not
        if held and self._gate.quiet:
            self._let_go()
        self._host.end_process(f"{self._gate.superseded}; this attempt ends")

    def _patient_until(self, began: float) -> float:
        """What names a timeout gets it, with the time to record; what names none gets our patience."""
        return max(began + self._patience, self._gate.in_hand_until + RECORD_SECONDS)

    def _let_go(self) -> None:
        try:
            self._ledger.let_go(self._lease)
        except LedgerError:
            # It lapses by itself.
            return
