"""Limits of model calls in memory, for tests and for authors' unit tests: answers as the PostgreSQL one does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_aiflow.durable.limit import Lent, Limit, LimitView, Wish
from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.storage.text import exact

if TYPE_CHECKING:
    from airflow_aiflow.storage.memory import MemoryLedger

#: Seconds over which requests and tokens are counted.
WINDOW = 60.0


@dataclass(slots=True)
class _Share:
    requests: int
    tokens: int
    slots: int
    waiting: int
    expires_at: float


@dataclass(slots=True)
class _Row:
    limit: Limit
    shares: dict[UUID, _Share] = field(default_factory=dict)
    #: Second, rounded up -> requests, tokens.
    used: dict[float, tuple[int, int]] = field(default_factory=dict)

    def counted(self, now: float) -> tuple[int, int]:
        self.used = {second: used for second, used in self.used.items() if second > now - WINDOW}
        self.shares = {who: share for who, share in self.shares.items() if share.expires_at > now - WINDOW}
        return sum(used[0] for used in self.used.values()), sum(used[1] for used in self.used.values())


def _fair(want: int, free: int | None, keep: int, workers: int) -> int | None:
    return None if free is None else min(want, max(math.ceil(free / workers), min(keep, free)))


def _left(most: int | None, *used: int) -> int | None:
    return None if most is None else max(most - sum(used), 0)


class MemoryLimits:
    """
    Implement the port ``LimitLedger`` without a database.

    :param ledger: whose lock and faults it shares.
    :param clock: stands for the database's clock.
    """

    def __init__(self, ledger: MemoryLedger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    def exchange(self, name: str, worker: UUID, wish: Wish, *, ttl: float) -> Lent | None:
        """Take what a worker has used, and lend it what is free."""
        with self._ledger.statement():
            row, now = self._rows.get(name), self._clock.monotonic()
            if row is None:
                return None
            if wish.used_requests or wish.used_tokens:
                second = math.floor(now) + 1.0
                before = row.used.get(second, (0, 0))
                row.used[second] = (before[0] + wish.used_requests, before[1] + wish.used_tokens)
            requests, tokens = row.counted(now)
            others = [share for who, share in row.shares.items() if who != worker]
            live = [share for share in others if share.expires_at > now]
            workers = 1 + sum(share.waiting > 0 for share in live)
            limit = row.limit
            free = _left(limit.rpm, requests, *(share.requests for share in others))
            lent_requests = _fair(wish.want_requests, free, wish.keep_requests, workers)
            free = _left(limit.tpm, tokens, wish.held_tokens, *(share.tokens for share in others))
            lent_tokens = _fair(wish.want_tokens, free, wish.keep_tokens, workers)
            free = _left(limit.concurrency, wish.in_flight, *(share.slots for share in live))
            more = _fair(wish.want_slots - wish.in_flight, free, 0, workers)
            slots = None if more is None else wish.in_flight + more
            row.shares.pop(worker, None)
            share = _Share(
                lent_requests or 0, wish.held_tokens + (lent_tokens or 0), slots or 0, wish.waiting, now + ttl
            )
            if share.requests + share.tokens + wish.in_flight + wish.waiting:
                row.shares[worker] = share
            return Lent(limit, lent_requests, lent_tokens, slots, workers > 1)

    def set_limit(self, limit: Limit) -> None:
        """Make a limit, or change it."""
        exact(limit.name, "the name of a limit")
        with self._ledger.statement():
            row = self._rows.setdefault(limit.name, _Row(limit))
            row.limit = limit

    def remove_limit(self, name: str) -> bool:
        """Remove a limit."""
        with self._ledger.statement():
            return self._rows.pop(name, None) is not None

    def limits(self) -> Sequence[LimitView]:
        """List the limits by name."""
        with self._ledger.statement():
            return [self._view(self._rows[name]) for name in sorted(self._rows)]

    def _view(self, row: _Row) -> LimitView:
        now = self._clock.monotonic()
        requests, tokens = row.counted(now)
        live = [share for share in row.shares.values() if share.expires_at > now]
        return LimitView(
            row.limit,
            requests + sum(share.requests for share in row.shares.values()),
            tokens + sum(share.tokens for share in row.shares.values()),
            sum(share.slots for share in live),
            len(live),
            sum(share.waiting for share in live),
        )
