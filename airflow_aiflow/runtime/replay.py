"""
What an attempt replays from, by meaning and not by position.

The occurrence number counts successes among equal calls of a unit: it is taken when a call starts and given back when
it fails, so a failed call never shifts the ones after it.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import EffectId, UnitPath, step_key
from airflow_aiflow.durable.ports import Recorded
from airflow_aiflow.durable.record import StepRecord, Usage

#: An intent without an outcome.
OPEN_STATES = (EffectState.INTENDED, EffectState.IN_DOUBT)


@dataclass(frozen=True, slots=True)
class Slot:
    """Be the place that one call takes among equal calls of its unit."""

    unit: UnitPath
    name: str
    fingerprint: bytes
    occurrence: int
    key: bytes


class _Numbers:
    __slots__ = ("free", "next")

    def __init__(self) -> None:
        self.next = 0
        #: A heap.
        self.free: list[int] = []

    def take(self) -> int:
        if self.free:
            return heapq.heappop(self.free)
        self.next += 1
        return self.next - 1


class Replay:
    """
    Index what is recorded and hand out occurrence numbers. Safe for use from several threads.

    :param recorded: everything that the ledger knows of this generation.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.steps: dict[bytes, StepRecord] = {record.step_key: record for record in recorded.steps}
        self.effects: dict[EffectId, EffectRecord] = {
            record.effect: record for record in recorded.effects if record.state is EffectState.SUCCEEDED
        }
        #: Effects that an earlier attempt of this execution began and that had no outcome when this one took over.
        self.open: dict[EffectId, EffectRecord] = {
            record.effect: record for record in recorded.effects if record.state in OPEN_STATES
        }
        #: The effects that this attempt has called so far.
        self.reached: set[EffectId] = set()
        #: What earlier generations did in targets, by step key; ``None``: not asked yet.
        self.earlier: dict[bytes, StepRecord] | None = None
        self._numbers: dict[tuple[UnitPath, str, bytes], _Numbers] = {}
        self._lock = threading.Lock()

    def take(self, unit: UnitPath, name: str, fingerprint: bytes) -> Slot:
        """
        Take the next place among equal calls.

        :param unit: the path of the unit that calls.
        :param name: the step's name.
        :param fingerprint: 32 bytes over what decides the outcome.
        """
        with self._lock:
            number = self._numbers.setdefault((unit, name, fingerprint), _Numbers()).take()
        return Slot(unit, name, fingerprint, number, step_key(unit, name, fingerprint, number))

    def give_back(self, *slots: Slot) -> None:
        """
        Give places back, each once: the call failed, or the unit in which it was made.

        :param slots: what ``take`` gave.
        """
        with self._lock:
            for slot in slots:
                heapq.heappush(self._numbers[(slot.unit, slot.name, slot.fingerprint)].free, slot.occurrence)

    def keep(self, record: StepRecord) -> None:
        """
        Let a result of this attempt be replayed by it: the unit around it may fail and be run again.

        :param record: what is recorded.
        """
        self.steps[record.step_key] = record

    def forget(self, keys: Iterable[bytes]) -> None:
        """
        Let go of results that nobody will ask for any more: the unit around them has ended.

        :param keys: their step keys.
        """
        for key in keys:
            self.steps.pop(key, None)


@dataclass(slots=True)
class Spent:
    """Sum up model calls: how many, their tokens, and their cost in US dollars where prices are known."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)

    def add(self, usage: Usage | None) -> None:
        """
        Count a model call.

        :param usage: what it cost; ``None``, of a step that is no model call, counts nothing.
        """
        if usage is None:
            return
        self.calls += 1
        self.tokens_in += usage.tokens_in
        self.tokens_out += usage.tokens_out
        self.cost += usage.cost or Decimal(0)
