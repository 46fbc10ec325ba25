"""Ask for many at once, and let one that can't be answered keep no other from its answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from airflow_aiflow.exceptions import AirflowUnavailableError, LedgerUnavailableError

log = logging.getLogger(__name__)

One = TypeVar("One")
Key = TypeVar("Key")
Value = TypeVar("Value")

#: Refusals of single ones in one call after which it is no matter of single ones: to halve on would only repeat it.
MOST_ODD = 10


def ask_many(
    many: Sequence[One], ask: Callable[[Sequence[One]], Mapping[Key, Value]], name: Callable[[One], object] = str
) -> dict[Key, Value]:
    """
    Ask for all in one go; where that fails, for each half by itself, down to the one that is at fault.

    :param many: of what.
    :param ask: may be called for parts of it, and again for what a failed call asked.
    :param name: of one, for the log.
    :return: without those that could not be answered; each is logged.
    :raises AirflowUnavailableError: if Airflow does not answer: no part is better off.
    :raises LedgerUnavailableError: likewise.
    """
    odd = 0

    def halves(part: Sequence[One]) -> dict[Key, Value]:
        nonlocal odd
        if not part:
            return {}
        try:
            return dict(ask(part))
        except (AirflowUnavailableError, LedgerUnavailableError):
            raise
        except Exception as error:
            if len(part) == 1:
                odd += 1
                if odd > MOST_ODD:
                    raise
                log.warning("aiflow: %s is left out for now: %s", name(part[0]), error)
                return {}
            middle = len(part) // 2
            return halves(part[:middle]) | halves(part[middle:])

    return halves(many)
