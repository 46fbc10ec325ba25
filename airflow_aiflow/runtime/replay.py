"""
What an attempt replays from, by meaning and not by position.

The occurrence number counts successes among equal calls of a unit: it is taken when a call starts and given back when
it fails, so a failed call never shifts the ones after it.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass
from decimal import Decimal

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import EffectId, UnitPath, step_key
from airflow_aiflow.durable.ports import Recorded
from airflow_aiflow.durable.record import StepRecord, Usage


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

    def give_back(self, slot: Slot) -> None:
        """
        Give a place back: the call failed.

        :param slot: what ``take`` gave.
        """
        with self._lock:
            heapq.heappush(self._numbers[(slot.unit, slot.name, slot.fingerprint)].free, slot.occurrence)


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
