"""Figures of a whole deployment, as the ledger gives them to dashboards; what each one covers is said here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: A name and a label; the label is empty where there is none.
FigureKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StoredCount:
    """
    Tell how many rows of a table are in a state.

    :param table: ``executions`` or ``effects``.
    :param estimated: whether it comes from the planner's statistics.
    """

    table: str
    state: str
    number: float
    estimated: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """
    Tell of executions that ended within the last hour and have not begun again.

    :param recoveries: requeues of all of them together, over their whole lives.
    """

    state: str
    number: int
    recoveries: int


@dataclass(frozen=True, slots=True)
class Figures:
    """
    Hold one look at the ledger.

    :param totals: what was written since the schema has a tally, all but the last half minute.
    :param behind: seconds between the last row that ``totals`` counts and now.
    :param now: what is so at this moment.
    :param ended: of the last hour.
    :param stored: what is kept, by state.
    :param commit_seconds: what one small commit took, with its way there and back.
    """

    totals: Mapping[FigureKey, float] = field(default_factory=dict)
    behind: float = 0.0
    now: Mapping[FigureKey, float] = field(default_factory=dict)
    ended: Sequence[Ended] = ()
    stored: Sequence[StoredCount] = ()
    commit_seconds: float = 0.0
