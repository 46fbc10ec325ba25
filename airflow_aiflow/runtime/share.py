"""
What one worker has borrowed of one limit, and who in it waits: plain arithmetic under one lock, without a clock.

A share is spent up to a moment that is counted from before it was asked for, so that it ends here no later than in the
ledger. Whoever came first is served first; a call that needs many tokens is not overtaken by small ones.
"""

from __future__ import annotations

import threading
from collections import deque

from airflow_aiflow.durable.limit import Lent, Limit, Wish

#: Seconds between two exchanges of one worker over one limit, at least.
ASK_SECONDS = 1.0

#: Requests that a worker borrows beside those that wait: the first calls of a task come one after the other, and should
#: not wait a second each.
FIRST_AHEAD = 4

#: How much more than it used since the last exchange a worker borrows ahead: a pace that grows is followed in a few
#: exchanges, and what is not used goes back with the next one.
AHEAD = 2


class Ticket:
    """Be one call that waits, or is at work."""

    __slots__ = ("tokens",)

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens


class Share:
    """
    Keep the books of one limit in one worker. Safe for use from several threads.

    :param name: the limit's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit = Limit(name)
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._requests: int | None = 0
        self._tokens: int | None = 0
        self._slots: int | None = 0
        self._until = float("-inf")
        self._in_flight = 0
        self._held_tokens = 0
        self._used_requests = 0
        self._used_tokens = 0
        #: Begun since the last exchange: how much will be wanted soon.
        self._recent_requests = 0
        self._recent_tokens = 0
        self._next_ask = float("-inf")
        self._asking = False
        #: Whether the ledger keeps anything for us.
        self._known = False
        self.others_wait = False

    def enter(self, ticket: Ticket) -> None:
        """Stand in line."""
        with self._lock:
            self._waiting.append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Give one's place in the line up, where one still has it."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def take(self, ticket: Ticket, now: float) -> bool:
        """
        Begin a call, where it is its turn and the share has what it needs.

        :param ticket: stands in line.
        :param now: of the clock by which ``lent`` was told the end.
        """
        with self._lock:
            if not self._waiting or self._waiting[0] is not ticket or self._short_of(ticket, now) is not None:
                return False
            self._waiting.popleft()
            if self._requests is not None:
                self._requests -= 1
            if self._tokens is not None:
                self._tokens -= self._charge(ticket)
            self._held_tokens += self._charge(ticket)
            self._in_flight += 1
            self._used_requests += 1
            self._recent_requests += 1
            self._recent_tokens += self._charge(ticket)
            return True

    def could(self, ticket: Ticket, now: float) -> bool:
        """Say whether ``take`` might succeed now."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0] is ticket and self._short_of(ticket, now) is None

    def short_of(self, ticket: Ticket, now: float) -> str:
        """Say, for people, what a call waits for."""
        with self._lock:
            return self._short_of(ticket, now) or "its turn"

    def _charge(self, ticket: Ticket) -> int:
        # More than a minute allows could never be lent: such a call takes the whole minute.
        return ticket.tokens if self.limit.tpm is None else min(ticket.tokens, self.limit.tpm)

    def _short_of(self, ticket: Ticket, now: float) -> str | None:
        limit = self.limit
        if now >= self._until:
            return "the ledger"
        if self._slots is not None and self._in_flight >= self._slots:
            return f"{limit.concurrency} calls at once"
        if self._requests is not None and self._requests < 1:
            return f"{limit.rpm} requests a minute"
        if self._tokens is not None and self._tokens < self._charge(ticket):
            return f"{limit.tpm} tokens a minute"
        return None

    def end(self, ticket: Ticket, *, tokens: int, requests: int) -> None:
        """
        End a call.

        :param tokens: that it used.
        :param requests: that it made.
        """
        with self._lock:
            self._in_flight -= 1
            self._held_tokens -= self._charge(ticket)
            self._used_tokens += tokens
            self._used_requests += max(requests - 1, 0)

    def due(self, now: float, *, every: float = ASK_SECONDS) -> bool:
        """
        Say whether to ask the ledger, and claim to do it: ``lent`` or ``unheard`` must follow.

        :param every: seconds between two exchanges.
        """
        with self._lock:
            if self._asking or now < self._next_ask + every - ASK_SECONDS:
                return False
            self._asking = True
            return True

    @property
    def next_ask(self) -> float:
        """When the ledger may be asked again."""
        return self._next_ask

    def wish(self, now: float, *, last: bool = False) -> Wish:
        """
        Put together what to tell the ledger; from here until ``lent`` nothing is left to spend.

        :param now: just before the ledger is asked.
        :param last: whether nothing is wanted any more.
        """
        with self._lock:
            waiting, alive = 0 if last else len(self._waiting), now < self._until
            wanted = sum(self._charge(ticket) for ticket in self._waiting)
            ahead = max(AHEAD * self._recent_requests, waiting, FIRST_AHEAD)
            ahead_tokens = max(AHEAD * self._recent_tokens, wanted)
            busy = not last and (waiting > 0 or self._recent_requests > 0)
            made = Wish(
                used_requests=self._used_requests,
                used_tokens=self._used_tokens,
                held_tokens=self._held_tokens,
                keep_requests=self._requests or 0 if alive and not last else 0,
                keep_tokens=self._tokens or 0 if alive and not last else 0,
                want_requests=waiting + ahead if busy else 0,
                want_tokens=wanted + ahead_tokens if busy else 0,
                in_flight=self._in_flight,
                want_slots=self._in_flight + waiting,
                waiting=waiting,
            )
            self._until = float("-inf")
            self._used_requests = self._used_tokens = self._recent_requests = self._recent_tokens = 0
            return made

    def lent(self, lent: Lent, wish: Wish, *, asked_at: float, seconds: float) -> None:
        """
        Note what the ledger answered.

        :param wish: what it was told.
        :param asked_at: just before it was asked.
        :param seconds: for which it is lent.
        """
        with self._lock:
            self.limit, self.others_wait = lent.limit, lent.others_wait
            self._requests, self._tokens, self._slots = lent.requests, lent.tokens, lent.slots
            self._until = asked_at + seconds
            self._known = bool(wish.waiting or wish.in_flight or wish.held_tokens or lent.requests or lent.tokens)
            self._asked(asked_at)

    def unheard(self, wish: Wish, *, asked_at: float) -> None:
        """
        Note that no answer came: what was used is told again, and counts twice if it had been heard.

        :param wish: what was told.
        """
        with self._lock:
            self._used_requests += wish.used_requests
            self._used_tokens += wish.used_tokens
            self._known = True  # for all that we know
            self._asked(asked_at)

    def _asked(self, asked_at: float) -> None:
        self._next_ask, self._asking = asked_at + ASK_SECONDS, False

    @property
    def idle(self) -> bool:
        """Whether the ledger has nothing to hear: nothing used, nothing that it keeps for us, nobody who waits."""
        with self._lock:
            return not (self._known or self._in_flight or self._used_requests or self._used_tokens or self._waiting)

    @property
    def nobody_waits(self) -> bool:
        """Whether nobody who waits renews the share."""
        with self._lock:
            return not self._waiting
