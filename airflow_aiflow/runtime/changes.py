"""
Tell which argument of a step has changed since it was recorded: for people, never for a decision.

A step that runs live is compared with what is recorded under its name in the same unit and was not replayed yet; the
record with the most equal arguments is taken for its former self. Whether that record is replayed later after all (the
step was new, put in before it) shows at the end alone, so a line of the log may say more than the summary counts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from airflow_aiflow.durable.fingerprint import PRINT_BYTES, Printed, changed_parts
from airflow_aiflow.durable.record import StepRecord

#: Records that a live step is compared with: a task whose thousand prompts all changed must not compare a million.
MOST_COMPARED = 32

#: Changed steps that the summary names; the rest is counted.
MOST_NAMED = 5

#: Replays that are noted: of a larger map it is told only in part what changed.
MOST_NOTED = 50_000

#: What is said where the calls have other numbers of arguments.
OTHERS = "the arguments"


@dataclass(frozen=True, slots=True)
class _Change:
    place: int
    name: str
    what: str
    former: bytes


class Changes:
    """
    Compare what runs with what is recorded. Safe for use from several threads.

    :param recorded: the steps of this generation, as the attempt found them.
    """

    def __init__(self, recorded: Sequence[StepRecord] = ()) -> None:
        self._recorded = recorded
        self._total = len(recorded)
        self._lock = threading.Lock()
        self._replayed: set[bytes] = set()
        #: By (unit, name), what no live step was compared with yet; made at the first live step, for most attempts
        #: have none.
        self._left: dict[tuple[str, str], deque[StepRecord]] | None = None
        self._found: list[_Change] = []

    def replayed(self, *step_keys: bytes) -> None:
        """
        Note that records are still in use.

        :param step_keys: their keys.
        """
        if self._total and len(self._replayed) < MOST_NOTED:
            self._replayed.update(step_keys)

    def of(self, record: StepRecord, printed: Printed | None, place: int) -> str | None:
        """
        Say what changed in a step that ran.

        :param record: what is recorded now.
        :param printed: names and prints of its arguments.
        :param place: its number in the log.
        :return: such as ``prompt, model``; ``None``: nothing like it is recorded.
        """
        if not self._total or printed is None:
            return None
        with self._lock:
            former = self._nearest(record, printed)
            if former is None:
                return None
            assert former.prints is not None
            names = changed_parts(former.prints, printed.prints, printed.names)
            what = OTHERS if names is None else ", ".join(names)
            if what:
                self._found.append(_Change(place, record.name, what, former.step_key))
            return what or None

    def _nearest(self, record: StepRecord, printed: Printed) -> StepRecord | None:
        if self._left is None:
            self._left = {}
            for each in self._recorded:
                if each.prints is not None:
                    self._left.setdefault((each.unit, each.name), deque()).append(each)
        left = self._left.get((record.unit, record.name))
        if not left:
            return None
        while left and left[0].step_key in self._replayed:
            left.popleft()
        compared = [each for each in islice(left, MOST_COMPARED) if each.step_key not in self._replayed]
        if not compared:
            return None
        best = max(compared, key=lambda each: _equal(each.prints, printed.prints))
        left.remove(best)
        return best

    def summary(self) -> str | None:
        """Give one line on the steps that changed; ``None``: none did."""
        with self._lock:
            changed = [change for change in self._found if change.former not in self._replayed]
        if not changed:
            return None
        named = [f"{change.name} {change.place} ({change.what})" for change in changed[:MOST_NAMED]]
        more = f", and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
        steps = "step" if self._total == 1 else "steps"
        return f"{len(changed)} of {self._total} {steps} changed: {', '.join(named)}{more}"


def _equal(one: bytes | None, other: bytes) -> int:
    if one is None or len(one) != len(other):
        return -1
    return sum(one[at : at + PRINT_BYTES] == other[at : at + PRINT_BYTES] for at in range(0, len(one), PRINT_BYTES))
