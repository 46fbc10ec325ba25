"""How a long job stands, in the words of whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_DONE = frozenset({"succeeded", "success", "completed"})
_FAILED = frozenset({"failed", "cancelled", "canceled", "expired", "error"})


@dataclass(frozen=True, slots=True)
class JobStatus:
    """
    Tell how a job stands.

    :param state: the provider's own word: ``succeeded`` and ``completed`` are done, ``failed``, ``cancelled`` and
        ``expired`` have failed, anything else is running.
    :param progress: anything that can be stored; shown as an event.
    :param message: one line for people.
    """

    state: str
    progress: Any = None
    message: str = ""

    @property
    def verdict(self) -> Literal["done", "failed", "running"]:
        """What the provider's word means."""
        word = str(self.state).strip().lower()
        return "done" if word in _DONE else "failed" if word in _FAILED else "running"
