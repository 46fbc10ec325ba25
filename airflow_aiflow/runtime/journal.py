"""The task log: one line a step, a summary at both ends. Values are never shown, names and figures are."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.items import Reusable
from airflow_aiflow.durable.ports import Host, Recorded
from airflow_aiflow.durable.record import Kept, StepRecord, Usage
from airflow_aiflow.runtime.changes import Changes
from airflow_aiflow.runtime.meter import Meter
from airflow_aiflow.runtime.replay import Spent

#: After so many lines about replays the rest is only counted: a long resume must not bury what runs.
MOST_REPLAY_LINES = 50

#: Width of a name's column.
NAME_WIDTH = 22


def money(amount: object) -> str:
    """
    Write an amount of US dollars.

    :param amount: a Decimal.
    """
    return f"${amount:.4f}".rstrip("0").rstrip(".") if amount else "$0"


def cost_of(spent: Spent) -> str:
    """
    Write what model calls cost; what is unknown is said, never written as nothing.

    :param spent: the calls.
    """
    if not spent.unpriced:
        return money(spent.cost)
    known = f"{money(spent.cost)} and " if spent.cost else ""
    return f"{known}an unknown price of {counted(spent.unpriced, 'call')}"


def counted(number: int, what: str) -> str:
    """
    Write a number of things.

    :param number: how many.
    :param what: one of them.
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _usage(usage: Usage | None) -> str:
    if usage is None:
        return ""
    cost = "price unknown" if usage.cost is None else money(usage.cost)
    return f"  {usage.tokens_in:,}+{usage.tokens_out:,} tok  {cost}"


def _paid(kept: Kept) -> Usage | None:
    if kept.tokens_in is None:
        return None
    return Usage(tokens_in=kept.tokens_in, tokens_out=kept.tokens_out or 0, cost=kept.cost)


class Journal:
    """
    Write the lines and keep the counts. Safe for use from several threads.

    :param host: who writes.
    :param recorded: what the attempt starts from.
    :param meter: tells dashboards of the same steps.
    """

    def __init__(self, host: Host, recorded: Recorded, meter: Meter) -> None:
        self._host = host
        self._expected = recorded.count
        self._numbers = recorded.numbers
        self._changes = Changes(recorded.steps)
        self._meter = meter
        self._lock = threading.Lock()
        self.number = 0
        self.replayed = 0
        self.from_runs = 0
        self.ran = 0
        self.effects = 0
        self.paid = Spent()
        self.saved = Spent()

    def opened(self, taken: Taken, recorded: Spent) -> None:
        """
        Say what the attempt starts from.

        :param taken: the take-over.
        :param recorded: model calls among the recorded steps.
        """
        if taken.why is not None:
            self._host.log(f"aiflow: {taken.why}")
        if not self._expected:
            self._host.log(f"aiflow: attempt {taken.number}, generation {taken.generation}: nothing recorded yet")
            return
        self._host.log(
            f"aiflow: resuming attempt {taken.number}, generation {taken.generation}: "
            f"{counted(self._expected, 'step')} recorded, "
            f"saved so far {counted(recorded.calls, 'model call')}, {cost_of(recorded)}"
        )

    def replay(self, record: StepRecord, *, theirs: bool = False, since: float | None = None) -> None:
        """
        Count a replayed step.

        :param record: what was recorded.
        :param theirs: whether another map index recorded it.
        :param since: the meter's clock when its reading began.
        """
        self._meter.replayed(record, since)
        self._changes.replayed(record.step_key)
        with self._lock:
            self.replayed += 1
            self.saved.add(record.usage)
            place = self._place()
        number = None if theirs else self._numbers.get(record.fence)
        self._replay_line(place, record.name, record.ended_at, number, theirs=theirs)

    def _replay_line(
        self, place: str, name: str, ended_at: datetime, number: int | None, *, theirs: bool = False
    ) -> None:
        if self.replayed <= MOST_REPLAY_LINES:
            who = ", another map index" if theirs else "" if number is None else f", attempt {number}"
            ran = f"(ran {ended_at.astimezone(UTC):%H:%M:%S}{who})"
            self._host.log(f"aiflow: {place} {name:<{NAME_WIDTH}} replayed                          {ran}")
        elif self.replayed == MOST_REPLAY_LINES + 1:
            self._host.log("aiflow: ... further replays are counted, not listed")

    def replayed_items(self, name: str, items: Sequence[Kept]) -> None:
        """
        Count replayed items of a map.

        :param name: the map's name.
        :param items: what was recorded.
        """
        self._meter.replayed_items(name, len(items), [_paid(kept) for kept in items if kept.tokens_in is not None])
        for kept in items:
            if self.replayed > MOST_REPLAY_LINES:
                break
            self._one_replayed(name, kept)
            items = items[1:]
        if not items:
            return
        calls = [kept for kept in items if kept.tokens_in is not None]
        self._changes.replayed(*(kept.step_key for kept in items))
        with self._lock:
            self.replayed += len(items)
            self.number += len(items)
            for kept in calls:
                self.saved.add(_paid(kept))

    def _one_replayed(self, name: str, kept: Kept) -> None:
        self._changes.replayed(kept.step_key)
        with self._lock:
            self.replayed += 1
            self.saved.add(_paid(kept))
            place = self._place()
        self._replay_line(place, name, kept.ended_at, self._numbers.get(kept.fence))

    def reused(self, found: Reusable, *, listed: bool = True) -> None:
        """
        Count a step whose result another run had.

        :param found: what it recorded.
        :param listed: whether it has a line of its own.
        """
        theirs = found.record
        self._meter.replayed(theirs)
        with self._lock:
            self.from_runs += 1
            self.saved.add(theirs.usage)
            place = self._place()
        if listed:
            of = f"(run {found.run_id}, {theirs.ended_at.astimezone(UTC):%Y-%m-%d %H:%M:%S})"
            self._host.log(f"aiflow: {place} {theirs.name:<{NAME_WIDTH}} reused  {_usage(theirs.usage)}  {of}")

    def step(self, record: StepRecord, printed: Printed | None = None, *, listed: bool = True) -> None:
        """
        Count a step that ran.

        :param record: what is recorded now.
        :param printed: what tells which of its arguments changed.
        :param listed: whether it has a line of its own.
        """
        self._meter.ran(record)
        with self._lock:
            self.ran += 1
            self.paid.add(record.usage)
            place, number = self._place(), self.number
        what = self._changes.of(record, printed, number)
        changed = f"     changed: {what}" if what else ""
        if not listed:
            return
        seconds = record.duration_ms / 1000
        self._host.log(
            f"aiflow: {place} {record.name:<{NAME_WIDTH}} ran     {seconds:6.1f} s{_usage(record.usage)}{changed}"
        )

    def wasted(self, name: str, usage: Usage, why: str) -> None:
        """
        Count a model call that was paid and gave nothing to record.

        :param name: the step's name.
        :param usage: what it cost.
        :param why: nothing is recorded.
        """
        with self._lock:
            self.paid.add(usage)
        self._host.log(f"aiflow:       {name:<{NAME_WIDTH}} paid, {why}{_usage(usage)}", warning=True)

    def effect(self, name: str, key: str, what: str, *, warning: bool = False) -> None:
        """
        Say what became of an effect.

        :param name: the effect's name.
        :param key: its business key.
        :param what: one clause.
        """
        with self._lock:
            self.effects += 1
            place = self._place()
        self._host.log(f"aiflow: {place} {name:<{NAME_WIDTH}} {key}  {what}", warning=warning)

    def closed(self) -> None:
        """Write the summary."""
        if changed := self._changes.summary():
            self._host.log(f"aiflow: {changed}")
        reused = f"{self.from_runs} reused from earlier runs, " if self.from_runs else ""
        self._host.log(
            f"aiflow: done: {self.replayed} replayed, {reused}{self.ran} ran, {counted(self.effects, 'effect')}; "
            f"paid {cost_of(self.paid)} for {counted(self.paid.calls, 'model call')}, "
            f"saved {cost_of(self.saved)} of {counted(self.saved.calls, 'model call')}"
        )

    def _place(self) -> str:
        self.number += 1
        if not self._expected:
            return f"[{self.number:>3}]"
        return f"[{self.number:>3}/{max(self._expected, self.number)}]"
