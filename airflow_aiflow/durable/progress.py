"""How far a run is: what its tasks at work said last, the steps they are in, and when it may be done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Told:
    """
    Hold what a task said of its progress.

    :param at: the database's clock.
    :param done: units of work that are done.
    :param total: all of them; ``None``: nobody knows.
    :param message: for people.
    """

    at: datetime
    done: int
    total: int | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """
    Show how far a run is.

    :param done: units, summed over its tasks at work.
    :param total: ``None``: one of them does not know, or none said anything.
    :param steps: names of the steps that are in hand, each once.
    :param message: of whoever spoke last.
    :param eta_seconds: until the last of its tasks at work is through, at the pace so far; ``None``: too early to say.
    """

    done: int | None
    total: int | None
    steps: tuple[str, ...]
    message: str | None
    eta_seconds: float | None


def progress_of(told: Iterable[Sequence[Told]], steps: Iterable[str | None], now: datetime) -> RunProgress:
    """
    Sum up what the tasks at work said.

    :param told: by task, the earliest first; a task that said nothing is an empty one.
    :param steps: the step that each is in; ``None``: none.
    :param now: the database's clock.
    """
    speaking = [_latest(each) for each in told if each]
    names = tuple(dict.fromkeys(name for name in steps if name))
    if not speaking:
        return RunProgress(None, None, names, None, None)
    last = [each[-1] for each in speaking]
    totals = [each.total for each in last]
    known = [total for total in totals if total is not None]
    left = [_seconds_left(each, now) for each in speaking]
    ends = [seconds for seconds in left if seconds is not None]
    return RunProgress(
        sum(each.done for each in last),
        sum(known) if len(known) == len(totals) else None,
        names,
        max(last, key=lambda each: each.at).message or None,
        max(ends) if len(ends) == len(left) else None,
    )


def _latest(told: Sequence[Told]) -> Sequence[Told]:
    """Give what was said of the same work as last: a task may have several maps, one after the other."""
    first = len(told) - 1
    while first and told[first - 1].total == told[first].total and told[first - 1].done <= told[first].done:
        first -= 1
    return told[first:]


def _seconds_left(told: Sequence[Told], now: datetime) -> float | None:
    first, last = told[0], told[-1]
    if last.total is None or last.done >= last.total:
        return None if last.total is None else 0.0
    took = (last.at - first.at).total_seconds()
    if took <= 0 or last.done <= first.done:
        return None
    ends_in = (last.total - last.done) * took / (last.done - first.done)
    return max(0.0, ends_in - (now - last.at).total_seconds())
