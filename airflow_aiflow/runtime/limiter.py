"""
Let model calls wait for named limits.

Who waits asks the ledger himself, once a second for all who wait; while calls are at work and nobody waits, a thread
renews the share, and gives back what is left. If the ledger can't be asked, no call is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from airflow_aiflow.durable.limit import SHARE_SECONDS, LimitLedger, check_limit_name
from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.exceptions import AiflowConfigError, LedgerError, LedgerUnavailableError
from airflow_aiflow.runtime.share import ASK_SECONDS, Share, Ticket

#: Seconds between two renewals of a share while nobody waits: three fit into a share's time.
RENEW_SECONDS = SHARE_SECONDS / 3

#: Seconds of waiting from which on the log says so: what is shorter is the pace of the limit itself.
WORTH_A_LINE = 2.0

#: Seconds between two looks of one who waits while another asks the ledger.
LEAST_PAUSE = 0.05

#: Seconds for which a ledger that can't be reached is asked again before the call fails.
PATIENCE = 60.0


class Permit:
    """
    Be the right to one call; ended by who made the call.

    :param share: whose.
    :param ticket: of the call.
    """

    def __init__(self, share: Share | None = None, ticket: Ticket | None = None) -> None:
        self._share = share
        self._ticket = ticket

    def end(self, *, tokens: int | None = None, requests: int = 1) -> None:
        """
        Give the call's place back.

        :param tokens: that it used; ``None``: nobody knows, so the estimate counts.
        :param requests: that it made.
        """
        share, ticket, self._share = self._share, self._ticket, None
        if share is not None and ticket is not None:
            share.end(ticket, tokens=ticket.tokens if tokens is None else tokens, requests=requests)


class Limiter:
    """
    Give permits for calls under the limits of a ledger. Safe for use from several threads.

    :param ledger: keeps the limits.
    :param clock: time.
    :param pause: waits, interruptibly: at most so many seconds, or until a condition.
    :param say: writes a line of the task log.
    :param keeper: whether a thread renews shares; ``False``: a test calls ``keep`` itself.
    """

    def __init__(
        self,
        ledger: LimitLedger,
        clock: Clock,
        *,
        pause: Callable[[float, Callable[[], bool]], object],
        say: Callable[[str], None],
        keeper: bool = True,
    ) -> None:
        self.worker = uuid4()
        self._ledger = ledger
        self._clock = clock
        self._pause = pause
        self._say = say
        self._with_keeper = keeper
        self._shares: dict[str, Share] = {}
        self._lock = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._closed = threading.Event()

    def permit(self, name: str, tokens: int, *, check: Callable[[], None], closing: Callable[[], bool]) -> Permit:
        """
        Wait until a call may be made.

        :param name: the limit's.
        :param tokens: that the call may take.
        :param check: raises where nothing may start any more, or the wait is too long; called while waiting.
        :param closing: whether nothing may start any more.
        :raises AiflowConfigError: if there is no such limit; nothing was sent.
        :raises LedgerUnavailableError: if the ledger can't be asked for too long; nothing was sent.
        """
        share, ticket = self._share(name), Ticket(tokens)
        began = self._clock.monotonic()
        said = False
        with self._in_line(share, ticket):
            while not share.take(ticket, self._clock.monotonic()):
                now = self._clock.monotonic()
                if share.due(now):
                    self._exchange(share, patient=now - began < PATIENCE)
                    continue
                check()
                if not said and now - began >= WORTH_A_LINE:
                    said = True
                    self._say(f"aiflow: waiting for limit '{name}': {share.short_of(ticket, now)}, over all workers")
                self._pause(
                    max(share.next_ask - now, LEAST_PAUSE),
                    lambda: closing() or share.could(ticket, self._clock.monotonic()),
                )
        waited = self._clock.monotonic() - began
        if said:
            self._say(f"aiflow: waited {waited:.1f} s for limit '{name}'")
        self._keep_alive()
        return Permit(share, ticket)

    @contextmanager
    def _in_line(self, share: Share, ticket: Ticket) -> Iterator[None]:
        share.enter(ticket)
        try:
            yield
        finally:
            share.leave(ticket)

    def _share(self, name: str) -> Share:
        check_limit_name(name)
        with self._lock:
            return self._shares.setdefault(name, Share(name))

    def _exchange(self, share: Share, *, patient: bool = False, last: bool = False) -> None:
        """Carry out an exchange that ``due`` has claimed."""
        asked_at = self._clock.monotonic()
        wish = share.wish(asked_at, last=last)
        try:
            lent = self._ledger.exchange(share.name, self.worker, wish, ttl=SHARE_SECONDS)
        except BaseException as error:
            share.unheard(wish, asked_at=asked_at)
            if patient and isinstance(error, LedgerUnavailableError):
                return
            raise
        if lent is None:
            share.unheard(wish, asked_at=asked_at)
            raise AiflowConfigError(
                f"there is no limit '{share.name}', so nothing was sent: set it by `aiflow limits set {share.name} "
                f"--rpm 500`, or leave rate_limit= out"
            )
        share.lent(lent, wish, asked_at=asked_at, seconds=SHARE_SECONDS)

    def keep(self) -> bool:
        """
        Renew or give back, where nobody who waits does it: one turn of the keeper.

        :return: whether there is anything to keep.
        """
        with self._lock:
            shares = list(self._shares.values())
        for share in shares:
            if share.idle or not share.nobody_waits:
                continue
            every = ASK_SECONDS if share.others_wait else RENEW_SECONDS
            if share.due(self._clock.monotonic(), every=every):
                try:
                    self._exchange(share)
                except (LedgerError, AiflowConfigError):
                    continue  # the share lapses by itself; who needs it next is told
        return any(not share.idle for share in shares)

    def _keep_alive(self) -> None:
        with self._lock:
            if self._keeper is not None or not self._with_keeper or self._closed.is_set():
                return
            self._keeper = threading.Thread(target=self._run, name="aiflow-limits", daemon=True)
            self._keeper.start()

    def _run(self) -> None:
        while not self._closed.wait(ASK_SECONDS):
            self.keep()

    def close(self) -> None:
        """Give back what is left. What a lost ledger does not hear lapses by itself."""
        self._closed.set()
        for share in list(self._shares.values()):
            if not share.idle and share.due(float("inf")):
                try:
                    self._exchange(share, last=True)
                except (LedgerError, AiflowConfigError):
                    continue
