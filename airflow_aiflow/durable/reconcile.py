"""What an author's ``reconcile=`` is asked, and the four things that it may say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Intent:
    """Describe a call that was begun, to who asks the target about it or takes it back."""

    name: str
    key: str
    #: The key that the target was given.
    idempotency_key: str
    #: The recorded arguments by name; ``*args`` are a list under their own name.
    request: dict[str, Any]
    begun_at: datetime
    #: The running number of the attempt that began it.
    attempt: int


@dataclass(frozen=True, slots=True)
class Happened:
    """
    Say that the target applied the call.

    :param result: what the effect gives from now on.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """Say that the target surely did not apply the call, and will not: it is made again."""


@dataclass(frozen=True, slots=True)
class StillPending:
    """
    Say that the target is at work on it: the slot goes back, and the target is asked again.

    :param check_in: seconds, or a ``timedelta``.
    """

    check_in: float | timedelta = 60.0


@dataclass(frozen=True, slots=True)
class CannotTell:
    """
    Say that the target can't be asked, or does not know: ``on_in_doubt`` follows.

    :param why: for people.
    """

    why: str = ""


Finding = Happened | DidNotHappen | StillPending | CannotTell
