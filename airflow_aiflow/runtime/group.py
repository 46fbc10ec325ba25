"""
Commit the results of a map in groups, by one writer.

A result waits at most ``interval`` seconds, and no longer than anybody is at work beside it; with 0, whoever brings it
waits for its commit instead. At most ``most`` results are uncommitted at any moment, those of a commit under way
included: that is what a crash can lose. Whoever brings one more waits until there is room. Nothing is told of a result
before it is committed.

From its outcome to its commit a result counts as in hand, so that an attempt which must end ends after it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.items import Reusable
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.step_seal import check_seal

#: Seconds between two commits while nobody is at work for a moment: quick items would else be committed one by one.
IDLE_INTERVAL = 0.005


@dataclass(slots=True)
class Uncommitted:
    """
    Hold a result on its way.

    :param item: whose it is; told back as it was given.
    :param record: what is to be committed.
    :param value: the decoded stored form; that of another record where somebody else's was first.
    :param error: why it was not recorded, or can't be read back.
    """

    item: Any
    record: StepRecord
    value: Any = None
    error: BaseException | None = None
    #: Whose record was there first; ``None``: this one was written.
    prior: StepRecord | None = None
    #: Where another run's result comes from; ``None``: the item ran.
    reused: Reusable | None = None
    #: Held until the outcome is known, where somebody waits for it.
    committed: threading.Lock | None = None


class GroupWriter:
    """
    Be the one writer of a map. Safe for use from its workers.

    :param session: the attempt at work.
    :param name: the map's name.
    :param most: most results that are uncommitted.
    :param interval: seconds that a result waits at most.
    :param told: called, from the writer's thread, with what was committed or could not be.
    :param load: reads a record of somebody else's.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        most: int,
        interval: float,
        told: Callable[[Sequence[Uncommitted]], None],
        load: Callable[[StepRecord], Any],
    ) -> None:
        self._session = session
        self._name = name
        self._most = most
        self._interval = interval
        self._told = told
        self._load = load
        self._lock = threading.Lock()
        #: The writer waits for results, workers for room.
        self._wake, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self._queue: list[Uncommitted] = []
        self._committing = 0
        self._at_work = 0
        self._first_at = 0.0
        self._done_at = 0.0
        self._ends = False
        self._thread: threading.Thread | None = None

    @property
    def at_work(self) -> int:
        """How many items are with workers, or on their way there."""
        return self._at_work

    def begun(self, number: int) -> None:
        """
        Note that items are handed to workers.

        :param number: how many; each ends by ``add`` or ``left``.
        """
        with self._lock:
            self._at_work += number

    def left(self) -> None:
        """Note that an item ended without a result of its own."""
        with self._lock:
            self._at_work -= 1
            if not self._at_work and self._queue:
                self._wake.notify()

    def add(self, result: Uncommitted, *, waits: bool = True) -> None:
        """
        Take an item's result; waits while there is no room, and for its commit where results do not wait for others.

        :param result: of an item that is at work.
        :param waits: whether who brings it may be made to wait for the commit.
        """
        committed = None
        with self._lock:
            while len(self._queue) + self._committing >= self._most:
                self._room.wait()
            if not self._queue:
                self._begin()
            self._queue.append(result)
            self._at_work -= 1
            if waits and not self._interval:
                committed = result.committed = threading.Lock()
                committed.acquire()
            if not self._at_work or len(self._queue) * 2 >= self._most:
                self._wake.notify()
        if committed is not None:
            committed.acquire()

    def add_all(self, results: Sequence[Uncommitted]) -> None:
        """
        Take the results of items that were one piece of work: one commit has them all. Waits while there is no room.

        :param results: of items that are at work; no more than may be uncommitted.
        """
        with self._lock:
            while self._queue or self._committing:
                if len(self._queue) + self._committing + len(results) <= self._most:
                    break
                self._room.wait()
            if not self._queue:
                self._begin()
            self._queue.extend(results)
            self._at_work -= len(results)
            if not self._at_work or len(self._queue) * 2 >= self._most:
                self._wake.notify()

    def _begin(self) -> None:
        self._first_at = time.monotonic()
        self._session.gate.hold(self, self._name)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="aiflow-map-writer", daemon=True)
            self._thread.start()
        else:
            self._wake.notify()

    def close(self, *, wait: bool) -> None:
        """
        Commit what is there and end; nobody may be at work any more.

        :param wait: whether to wait for that.
        """
        with self._lock:
            self._ends = True
            self._wake.notify()
        if wait and self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (results := self._next()) is not None:
            try:
                self._commit(results)
            except BaseException as error:  # whatever it is, nobody may take an unwritten result for a written one
                for result in results:
                    result.error = result.error or error
            with self._lock:
                self._committing, self._done_at = 0, time.monotonic()
                if not self._queue:
                    self._session.gate.drop(self)
                self._room.notify_all()
            self._told(results)
            for result in results:
                if result.committed is not None:
                    result.committed.release()

    def _next(self) -> list[Uncommitted] | None:
        with self._lock:
            while True:
                if self._queue:
                    left = self._due_in()
                    if left <= 0:
                        break
                    self._wake.wait(left)
                elif self._ends:
                    return None
                else:
                    self._wake.wait()
            results, self._queue = self._queue, []
            self._committing = len(results)
            return results

    def _due_in(self) -> float:
        now = time.monotonic()
        if self._ends or len(self._queue) * 2 >= self._most:
            return 0.0
        due = self._first_at + self._interval
        return (due if self._at_work else min(due, self._done_at + IDLE_INTERVAL)) - now

    def _commit(self, results: Sequence[Uncommitted]) -> None:
        answers = self._session.recorder.group(
            [result.record for result in results],
            {
                "name": self._name,
                "kind": results[0].record.kind,
                "count": len(results),
                "ms": round(sum(result.record.duration_ms for result in results if result.reused is None), 1),
            }
            | _reused(results),
        )
        for result, answer in zip(results, answers, strict=True):
            failpoint("after_record", self._name)
            if isinstance(answer, BaseException):
                result.error = answer
            elif answer is not None:
                self._take_over(result, answer)

    def _take_over(self, result: Uncommitted, prior: StepRecord) -> None:
        result.prior = prior
        try:
            check_seal(self._session, prior)
            result.value, result.error = self._load(prior), None
        except Exception as error:  # the author's class may refuse it
            result.error = error


def _reused(results: Sequence[Uncommitted]) -> dict[str, Any]:
    """Say for an event how much of a group other runs had, which ones, and what they had paid for it."""
    found = [result.reused for result in results if result.reused is not None]
    if not found:
        return {}
    paid = [each.record.usage.cost for each in found if each.record.usage and each.record.usage.cost is not None]
    runs = Counter(each.run_id for each in found)
    return {"reused": len(found), "reused_from": dict(runs), "cost": str(sum(paid, Decimal(0)))}
