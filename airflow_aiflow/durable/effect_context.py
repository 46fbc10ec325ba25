"""What an effect's function is given about its call. A DAG file imports it for an annotation, so it stands alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EffectContext:
    """Be given to an effect's function whose first parameter is called ``ctx``."""

    #: Hand it to a target that dedups; retries keep it, only a wished repeat changes it.
    idempotency_key: str
    key: str
    attempt: int
    fence: int
    #: Seconds that the call may take.
    deadline: float
