"""
Measure one attempt for dashboards: what ran, what was replayed instead, how long the ledger takes to commit.

A step costs a commit or a model call, so each is told of at once. Replays and the items of a map may come by the ten
thousand: they are summed up and told of at the end, or beside what runs where that goes on for long.

Not covered: an attempt that is killed tells nothing of what it had summed up and not told of yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.ports import Clock, Stats
from airflow_aiflow.durable.record import StepRecord, Usage
from airflow_aiflow.runtime.replay import Spent

R = TypeVar("R")

#: Between two reports of sums while an attempt runs: a dashboard's resolution, so that a long attempt's are seen.
TELL_SECONDS = 10.0

#: Step names of one report: authors who put an item's number into a name would flood whoever keeps the figures.
MOST_NAMES = 50


class Meter:
    """
    Tell of one attempt. Safe for use from several threads; without stats it does nothing.

    :param stats: where the figures go; ``None``: nowhere.
    :param clock: measures.
    :param attempt: which attempt it is.
    :param taken: how it began.
    """

    def __init__(self, stats: Stats | None, clock: Clock, attempt: Attempt, taken: Taken) -> None:
        self._stats = stats
        self._clock = clock
        self._workflow = {"workflow": f"{attempt.execution.dag_id}/{attempt.execution.task_id}"}
        self._saved_tags = self._workflow | {"sign": taken.sign.value}
        self._lock = threading.Lock()
        self._told_at = clock.monotonic()
        #: (name, whether replayed) -> how many, seconds in all.
        self._sums: dict[tuple[str, bool], tuple[int, float]] = {}
        self._steps = 0
        self._saved = Spent()

    def now(self) -> float:
        """Give the clock's seconds, to be handed back to ``replayed``."""
        return 0.0 if self._stats is None else self._clock.monotonic()

    def ran(self, record: StepRecord) -> None:
        """
        Tell of a step that ran.

        :param record: what is recorded now.
        """
        if self._stats is None:
            return
        seconds = record.duration_ms / 1000
        if record.kind == "item":
            with self._lock:
                self._add(record.name, 1, seconds, replayed=False)
        else:
            self._step(record.name, seconds, replayed=False)
        if self._clock.monotonic() - self._told_at >= TELL_SECONDS:
            self.flush()

    def replayed(self, record: StepRecord, since: float | None = None) -> None:
        """
        Note a step that was replayed.

        :param record: what was recorded.
        :param since: what ``now`` gave when its reading began; ``None``: that was not measured.
        """
        if self._stats is None:
            return
        took = 0.0 if since is None else self._clock.monotonic() - since
        with self._lock:
            self._steps += 1
            self._saved.add(record.usage)
            self._add(record.name, 1, took, replayed=True)

    def replayed_items(self, name: str, number: int, paid: Sequence[Usage | None]) -> None:
        """
        Note items of a map that were replayed together; what reading them took is not measured.

        :param name: the map's name.
        :param number: how many.
        :param paid: of those that were model calls.
        """
        if self._stats is None or not number:
            return
        with self._lock:
            self._steps += number
            for usage in paid:
                self._saved.add(usage)

    def commit(self, statement: str, call: Callable[[], R]) -> R:
        """
        Carry out a commit and tell how long it took; one that fails tells nothing.

        :param statement: which one: ``record``, ``intend`` or ``settle``.
        :param call: the commit.
        """
        if self._stats is None:
            return call()
        began = self._clock.monotonic()
        value = call()
        self._stats.timing("aiflow.ledger.commit_seconds", self._clock.monotonic() - began, {"statement": statement})
        return value

    def flush(self) -> None:
        """Tell of what was summed up and not told of yet."""
        stats = self._stats
        if stats is None:
            return
        with self._lock:
            steps, self._steps = self._steps, 0
            saved, self._saved = self._saved, Spent()
            sums, self._sums = self._sums, {}
            self._told_at = self._clock.monotonic()
        if steps:
            stats.count("aiflow.steps.saved", steps, self._saved_tags)
        if saved.calls:
            stats.count("aiflow.llm.calls_saved", saved.calls, self._saved_tags)
        if saved.cost:
            stats.count("aiflow.llm.cost_saved", float(saved.cost), self._saved_tags)
        for (name, replayed), (count, total) in list(sums.items())[:MOST_NAMES]:
            self._step(name, total / count, replayed=replayed)

    def _add(self, name: str, number: int, seconds: float, *, replayed: bool) -> None:
        count, total = self._sums.get((name, replayed), (0, 0.0))
        self._sums[name, replayed] = (count + number, total + seconds)

    def _step(self, name: str, seconds: float, *, replayed: bool) -> None:
        if self._stats is not None:
            tags = self._workflow | {"step": name, "from_checkpoint": "true" if replayed else "false"}
            self._stats.timing("aiflow.step.duration", seconds, tags)
