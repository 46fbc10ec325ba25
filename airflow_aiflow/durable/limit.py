"""
Named limits of calls: so many requests and tokens a minute, so many calls at once, over all workers.

A worker borrows a share and spends it by itself, so that the ledger is asked once a second and not once a call. What
is lent counts as spent until it is given back, or until its time and one window more have passed: no moment exists at
which more than the limit was lent for the window around it. A worker that dies gives its share back by that lapse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from airflow_aiflow.exceptions import FlowOptionError

#: Longest name of a limit.
LONGEST_NAME = 128

#: Seconds for which a share may be spent without asking again. A dead worker's calls in flight give their places back
#: after it; three missed renewals fit into it.
SHARE_SECONDS = 15.0


def check_limit_name(name: object) -> str:
    """
    Check a limit's name.

    :param name: what the author or a person gave.
    :raises FlowOptionError: if it is none.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise FlowOptionError(f"rate_limit must name a limit in 1 to {LONGEST_NAME} printable characters, got {name!r}")
    return name


@dataclass(frozen=True, slots=True)
class Limit:
    """
    Hold what a limit allows.

    :param rpm: requests a minute; ``None``: any number. So with the others.
    :param tpm: tokens a minute, of prompts and answers.
    :param concurrency: calls at once.
    """

    name: str
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """
    Say what a worker has used and what it wants, in one exchange.

    :param used_requests: calls begun since the last exchange.
    :param used_tokens: of the calls that have ended since.
    :param held_tokens: set aside for calls in flight.
    :param keep_requests: borrowed before, and not used yet.
    :param keep_tokens: likewise.
    :param want_requests: how many it wants to have, those that it keeps included.
    :param want_tokens: likewise, beside those that are held.
    :param in_flight: calls at work.
    :param want_slots: calls that it wants to have at work, those in flight included.
    :param waiting: calls that wait.
    """

    used_requests: int = 0
    used_tokens: int = 0
    held_tokens: int = 0
    keep_requests: int = 0
    keep_tokens: int = 0
    want_requests: int = 0
    want_tokens: int = 0
    in_flight: int = 0
    want_slots: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Lent:
    """
    Say what a worker has now.

    :param limit: as it is set.
    :param requests: that may be begun; ``None``: any number. So with the others.
    :param tokens: beside those that are held for calls in flight.
    :param slots: calls at once, those in flight included.
    :param others_wait: whether other workers have calls that wait.
    """

    limit: Limit
    requests: int | None
    tokens: int | None
    slots: int | None
    others_wait: bool = False


@dataclass(frozen=True, slots=True)
class LimitView:
    """
    Show a limit as it stands.

    :param used_requests: in the last minute, those lent to workers included.
    :param used_tokens: likewise.
    :param slots: calls at once that are lent.
    :param workers: that hold a share.
    :param waiting: calls that wait.
    """

    limit: Limit
    used_requests: int = 0
    used_tokens: int = 0
    slots: int = 0
    workers: int = 0
    waiting: int = 0


class LimitLedger(Protocol):
    """
    Keep limits and what is lent of them; only this side's clock is compared. Safe for use from several threads.

    Any method raises ``LedgerUnavailableError`` where it can't be asked. An exchange whose answer was lost may be made
    again: what was used counts twice then, which lends less, never more.
    """

    def exchange(self, name: str, worker: UUID, wish: Wish, *, ttl: float) -> Lent | None:
        """
        Take what a worker has used, and lend it what is free.

        :param worker: who borrows.
        :param wish: what it used, holds and wants; what it had before is given back by this, whatever it was.
        :param ttl: seconds for which the share may be spent.
        :return: ``None``: there is no such limit.
        """

    def set_limit(self, limit: Limit) -> None:
        """Make a limit, or change it; workers follow with their next exchange."""

    def remove_limit(self, name: str) -> bool:
        """
        Remove a limit.

        :return: whether it was there.
        """

    def limits(self) -> Sequence[LimitView]:
        """List the limits by name."""
