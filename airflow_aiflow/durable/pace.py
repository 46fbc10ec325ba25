"""How fast one user may hand work in: an even pace over a minute, of which a whole minute may come at once."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_aiflow.exceptions import SubmissionRefusedError

#: Seconds over which submissions are counted.
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """
    Say how many new submissions a user may make; repeats that find their task are not counted.

    :param per_minute: over all API servers, at least 1.
    """

    per_minute: int

    @property
    def step(self) -> float:
        """Seconds between two at an even pace."""
        return MINUTE / self.per_minute


class TooFastError(SubmissionRefusedError):
    """
    The user hands in faster than is allowed; nothing was written.

    :param retry_after: seconds until the next one is taken.
    """

    def __init__(self, pace: Pace, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(
            f"you may hand in {pace.per_minute} tasks a minute: the next one is taken in {retry_after:.0f} s", ""
        )
