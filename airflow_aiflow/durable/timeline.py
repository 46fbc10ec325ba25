"""What people read of one execution: its attempts, generations, steps, maps and effects as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.items import FailedItem
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.durable.run_view import ExecutionView

#: How an attempt ended, for people: ``killed`` is one that ended without a word.
AttemptOutcome = Literal["running", "succeeded", "failed", "cancelled", "killed", "superseded", "paused"]

#: ``ran`` by the last attempt; ``replayed``: an earlier one recorded it and the last one found it; ``reused``: another
#: run, or another map index, had it.
StepState = Literal["ran", "replayed", "reused"]

_OUTCOMES: Mapping[str, AttemptOutcome] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "paused",
    "superseded": "superseded",
    "lapsed": "killed",
    "let_go": "killed",
}

_STARTS_ANEW = ("first", "cleared", "made_again")


@dataclass(frozen=True, slots=True)
class AttemptView:
    """
    Show an attempt.

    :param attempt: its running number; several with one number are one try of Airflow's that was interrupted.
    :param ending: the ledger's word; ``None``: there is none.
    :param live: whether it holds the lease now.
    :param died_in: the step in hand when it was lost.
    """

    fence: int
    attempt: int
    sign: str
    try_number: int
    started_at: datetime
    ended_at: datetime | None
    ending: str | None
    live: bool
    died_in: str | None
    host: str
    pid: int

    @property
    def outcome(self) -> AttemptOutcome:
        """How it ended; without a word and without a lease it was killed."""
        if self.ending is None:
            return "running" if self.live else "killed"
        return _OUTCOMES.get(self.ending, "failed")


@dataclass(frozen=True, slots=True)
class GenerationView:
    """
    Show a generation.

    :param fence: of the attempt that began it.
    :param why: the sign of that attempt.
    """

    generation: int
    fence: int
    started_at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class SavedView:
    """
    Sum up what an execution did not have to pay again in its current generation.

    :param replayed_calls: recorded model calls that a later attempt found, once for each such attempt; what goes on
        within one attempt, after a reschedule, counts nothing.
    :param replayed_cost: US dollars, of those whose price is known.
    :param reused_calls: model calls whose answers came from another run.
    :param recoveries: how often recovery made it runnable again.
    """

    started_at: datetime
    attempts: int
    replayed_calls: int = 0
    replayed_cost: Decimal = Decimal(0)
    reused_calls: int = 0
    reused_cost: Decimal = Decimal(0)
    recoveries: int = 0


@dataclass(frozen=True, slots=True)
class StepRow:
    """Show a recorded step as a bar; ``began_at`` and ``ended_at`` are the worker's clock."""

    key: bytes
    kind: str
    name: str
    unit: str
    fence: int
    began_at: datetime
    ended_at: datetime
    reused: bool
    calls: int
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class MapView:
    """
    Show a map as one bar.

    :param units: items that are recorded, or that steps inside are recorded of.
    :param steps: recorded in it.
    :param failed: items that have no result.
    """

    name: str
    units: int
    steps: int
    failed: int
    calls: int
    cost: Decimal
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Timeline:
    """
    Show an execution's life in one of its generations.

    :param truncated: whether there are more steps or effects than are given.
    """

    execution: ExecutionView
    saved: SavedView
    generation: int
    generations: Sequence[GenerationView]
    attempts: Sequence[AttemptView]
    rows: Sequence[StepRow]
    maps: Sequence[MapView]
    effects: Sequence[EffectRecord]
    wasted: PaidView
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class PaidView:
    """Sum up model calls."""

    calls: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class UnitPage:
    """Show some units of a map, by their keys, and on the first page the items without a result."""

    rows: Sequence[StepRow]
    failed: Sequence[FailedItem] = field(default=())
    more: bool = False


@dataclass(frozen=True, slots=True)
class StepSheet:
    """
    Show one recorded step, whole.

    :param record: as the ledger keeps it.
    :param row: the same as a bar.
    :param generation: in which it is recorded.
    :param before: steps of the generation before that may be its former self.
    :param names: of its arguments; ``None``: they are not kept, or nothing is to be compared.
    """

    record: StepRecord
    row: StepRow
    execution_pk: int
    generation: int
    attempt: AttemptView
    before: Sequence[StepRecord]
    names: tuple[str, ...] | None = None


def generations_of(attempts: Sequence[AttemptView], known: Mapping[int, int], current: int) -> Sequence[GenerationView]:
    """
    Say which attempt began which generation.

    The ledger keeps a generation with what is recorded, not with an attempt: between two that are known, a clear is the
    one that began the next.

    :param attempts: of one execution, in order.
    :param known: fence -> generation, of what is recorded.
    :param current: the last attempt's.
    """
    found: list[GenerationView] = []
    at = 0
    for place, one in enumerate(attempts):
        later = [known[each.fence] for each in attempts[place:] if each.fence in known]
        most = min([*later, current])
        if at == 0 or (one.sign in _STARTS_ANEW and at < most) or known.get(one.fence, at) > at:
            at = known.get(one.fence, at + 1)
            found.append(GenerationView(at, one.fence, one.started_at, one.sign))
    return found
