"""Mark the few values that lie far from the others: by the median, so that they do not hide each other."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

#: Values below which nothing is told apart.
LEAST = 6

#: Median distances from the median from which on a value lies far away: about four standard deviations.
FAR = 6.0

#: Share of the median that a distance has at least: runs that are all alike have none.
LEAST_SHARE = 0.5


def outliers(values: Sequence[float | None]) -> list[bool]:
    """
    Say which values lie far from the others.

    :param values: ``None`` is none.
    """
    known = [value for value in values if value is not None]
    if len(known) < LEAST:
        return [False] * len(values)
    middle = median(known)
    spread = median(abs(value - middle) for value in known)
    far = max(FAR * spread, LEAST_SHARE * abs(middle))
    return [value is not None and far > 0 and abs(value - middle) > far for value in values]
