"""The task log: one line a step, a summary at both ends. Values are never shown, names and figures are."""

from __future__ import annotations

import threading

from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.ports import Host
from airflow_aiflow.durable.record import StepRecord, Usage
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


def _usage(usage: Usage | None) -> str:
    if usage is None:
        return ""
    cost = "price unknown" if usage.cost is None else money(usage.cost)
    return f"  {usage.tokens_in:,}+{usage.tokens_out:,} tok  {cost}"


class Journal:
    """
    Write the lines and keep the counts. Safe for use from several threads.

    :param host: who writes.
    :param expected: how many steps are recorded at the start, 0 on a first run.
    """

    def __init__(self, host: Host, expected: int) -> None:
        self._host = host
        self._expected = expected
        self._lock = threading.Lock()
        self.number = 0
        self.replayed = 0
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
        if not self._expected:
            self._host.log(f"aiflow: attempt {taken.number}, generation {taken.generation}: nothing recorded yet")
            return
        self._host.log(
            f"aiflow: resuming attempt {taken.number}, generation {taken.generation}: {self._expected} steps recorded, "
            f"saved so far {recorded.calls} model calls, {money(recorded.cost)}"
        )

    def replay(self, record: StepRecord) -> None:
        """
        Count a replayed step.

        :param record: what was recorded.
        """
        with self._lock:
            self.replayed += 1
            self.saved.add(record.usage)
            place = self._place()
            silent = self.replayed > MOST_REPLAY_LINES
        if not silent:
            ran = f"(ran {record.ended_at:%H:%M:%S})"
            self._host.log(f"aiflow: {place} {record.name:<{NAME_WIDTH}} replayed                          {ran}")
        elif self.replayed == MOST_REPLAY_LINES + 1:
            self._host.log("aiflow: ... further replays are counted, not listed")

    def step(self, record: StepRecord) -> None:
        """
        Count a step that ran.

        :param record: what is recorded now.
        """
        with self._lock:
            self.ran += 1
            self.paid.add(record.usage)
            place = self._place()
        seconds = record.duration_ms / 1000
        self._host.log(f"aiflow: {place} {record.name:<{NAME_WIDTH}} ran     {seconds:6.1f} s{_usage(record.usage)}")

    def wasted(self, name: str, usage: Usage) -> None:
        """
        Count a model call that was paid and gave nothing to record.

        :param name: the step's name.
        :param usage: what it cost.
        """
        with self._lock:
            self.paid.add(usage)
        self._host.log(f"aiflow:       {name:<{NAME_WIDTH}} paid, no fit answer{_usage(usage)}", warning=True)

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
        self._host.log(f"aiflow: {place} {name:<{NAME_WIDTH}} {key}: {what}", warning=warning)

    def closed(self) -> None:
        """Write the summary."""
        self._host.log(
            f"aiflow: done: {self.replayed} replayed, {self.ran} ran, {self.effects} effects; "
            f"paid {money(self.paid.cost)} for {self.paid.calls} model calls, "
            f"saved {money(self.saved.cost)} of {self.saved.calls}"
        )

    def _place(self) -> str:
        self.number += 1
        if not self._expected:
            return f"[{self.number:>3}]"
        return f"[{self.number:>3}/{max(self._expected, self.number)}]"
