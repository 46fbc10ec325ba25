"""
What an attempt replays from, by meaning and not by position.

The occurrence number counts successes among equal calls of a unit: it is taken when a call starts and given back when
it fails, so a failed call never shifts the ones after it.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.identity import EffectId, UnitPath, step_key
from airflow_aiflow.durable.ports import Recorded
from airflow_aiflow.durable.record import StepRecord, Usage

#: An intent without an outcome.
OPEN_STATES = (EffectState.INTENDED, EffectState.IN_DOUBT)


class Slot(NamedTuple):
    """Be the place that one call takes among equal calls of its unit."""

    unit: UnitPath
    name: str
    fingerprint: bytes
    occurrence: int
    key: bytes


class Numbers:
    """
    Hand out occurrence numbers among equal calls of one name in one unit. Safe for use from several threads.

    A map asks a million times, so an entry is two small integers: calls count by the first eight bytes of their
    fingerprint. Two that share those (one pair in a hundred million maps of that size) would only be numbered as equal
    calls are, in list order.
    """

    __slots__ = ("_free", "_lock", "_next")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[int, int] = {}
        #: Heaps of what was given back.
        self._free: dict[int, list[int]] = {}

    def take(self, fingerprint: bytes) -> int:
        """
        Take the lowest number that is free.

        :param fingerprint: 32 bytes over what decides the outcome.
        """
        return self.take_all((fingerprint,))[0]

    def take_all(self, fingerprints: Iterable[bytes]) -> list[int]:
        """
        Take a number for each of many calls, in their order.

        :param fingerprints: of the calls.
        """
        numbers, following = [], self._next
        with self._lock:
            for fingerprint in fingerprints:
                call = int.from_bytes(fingerprint[:8], "big")
                if self._free and (free := self._free.get(call)):
                    number = heapq.heappop(free)
                    if not free:
                        del self._free[call]
                else:
                    number = following.get(call, 0)
                    following[call] = number + 1
                numbers.append(number)
        return numbers

    def give_back(self, fingerprint: bytes, number: int) -> None:
        """
        Give a number back, once.

        :param fingerprint: of the call.
        :param number: what ``take`` gave.
        """
        with self._lock:
            heapq.heappush(self._free.setdefault(int.from_bytes(fingerprint[:8], "big"), []), number)


class Replay:
    """
    Index what is recorded and hand out occurrence numbers. Safe for use from several threads.

    :param recorded: what the ledger knows of this generation.
    :param find: reads a step by its key, where ``recorded`` says that there are more than it holds.
    """

    def __init__(self, recorded: Recorded, find: Callable[[bytes], StepRecord | None] | None = None) -> None:
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
        self._numbers: dict[tuple[UnitPath, str], Numbers] = {}
        self._lock = threading.Lock()
        #: Reads a step that is not in memory, by its key; ``None``: all that is recorded is in memory.
        self._find = find

    def take(self, unit: UnitPath, name: str, fingerprint: bytes) -> Slot:
        """
        Take the next place among equal calls.

        :param unit: the path of the unit that calls.
        :param name: the step's name.
        :param fingerprint: 32 bytes over what decides the outcome.
        """
        number = self.numbers(unit, name).take(fingerprint)
        return Slot(unit, name, fingerprint, number, step_key(unit, name, fingerprint, number))

    def numbers(self, unit: UnitPath, name: str) -> Numbers:
        """
        Give the occurrence numbers of one name in one unit.

        :param unit: the path of the unit that calls.
        :param name: the step's name.
        """
        with self._lock:
            return self._numbers.setdefault((unit, name), Numbers())

    def find(self, key: bytes) -> StepRecord | None:
        """
        Give what is recorded under a step's key; ``None``: nothing.

        :param key: 32 bytes.
        """
        record = self.steps.get(key)
        return self._find(key) if record is None and self._find is not None else record

    @property
    def in_memory(self) -> bool:
        """Whether all that is recorded is in memory."""
        return self._find is None

    def give_back(self, *slots: Slot) -> None:
        """
        Give places back, each once: the call failed, or the unit in which it was made.

        :param slots: what ``take`` gave.
        """
        for slot in slots:
            self.numbers(slot.unit, slot.name).give_back(slot.fingerprint, slot.occurrence)

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
    """
    Sum up model calls: how many, their tokens, and their cost in US dollars.

    :param unpriced: calls whose price is unknown; the cost is that of the others.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )

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
        self.unpriced += usage.cost is None


def spent_before(recorded: Recorded) -> Spent:
    """
    Sum up the model calls that earlier attempts of the generation recorded.

    :param recorded: what an attempt starts from.
    """
    sums = recorded.totals
    if sums is not None:
        return Spent(sums.calls, sums.tokens_in, sums.tokens_out, sums.cost, sums.unpriced)
    spent = Spent()
    for record in recorded.steps:
        spent.add(record.usage)
    return spent
