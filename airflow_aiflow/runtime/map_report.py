"""How far a map is: a line of the task log for each twentieth or half a minute, and which items failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from airflow_aiflow.durable.ports import Clock
from airflow_aiflow.runtime.map_rules import MapRules

#: Items of a map that have a line of their own when they ran: those after them are told of by progress.
MOST_ITEM_LINES = 50

#: Shares of the whole that have a line.
LINES = 20
#: Seconds after which there is a line all the same.
LINE_SECONDS = 30.0

#: Failed items that are named; the rest is counted.
MOST_NAMED = 10


class MapReport:
    """
    Count what is done and say so.

    :param name: the map's name.
    :param total: how many items there are; ``None``: nobody knows before the end.
    :param clock: for times.
    :param log: writes a line; given whether it is a warning.
    :param told: called with each line's figures: done, total, message.
    :param share: says which share of the items has been read, where nobody knows how many there are.
    """

    def __init__(
        self,
        name: str,
        total: int | None,
        clock: Clock,
        log: Callable[[str, bool], None],
        told: Callable[[int, int | None, str], None],
        share: Callable[[], float | None] | None = None,
    ) -> None:
        self._name, self.total, self._clock, self._log, self._told = name, total, clock, log, told
        self._began = self._line_at = clock.monotonic()
        self._listed = 0
        self._step = max(1, (total or 0) // LINES)
        self._next = self._step if total is not None and total > MOST_ITEM_LINES else None
        self._share = share
        #: The twentieth of a file of unknown length in which the last line was written.
        self._part = 0
        self.count = 0
        self.failures = 0
        self._named: list[str] = []

    def lists(self) -> bool:
        """Say whether the next item that ran has a line of its own."""
        self._listed += 1
        return self._listed <= MOST_ITEM_LINES

    def done(self, number: int) -> None:
        """
        Count items that are recorded, and write a line where one is due.

        :param number: how many more.
        """
        if not number:
            return
        self.count += number
        now, ended = self._clock.monotonic(), self.count + self.failures
        due = self._next is not None and ended >= self._next
        if self.total is None and ended > MOST_ITEM_LINES and (share := self._read_share()) is not None:
            due = due or int(share * LINES) > self._part
        if due or now - self._line_at >= LINE_SECONDS:
            self._line(now)

    def _read_share(self) -> float | None:
        return None if self._share is None else self._share()

    def failed(self, number: int, key: str | None, error: BaseException) -> None:
        """
        Note a failed item, which the map goes on without.

        :param number: of the item in the list, from 0.
        :param key: its own key, where it has one.
        :param error: what became of it.
        """
        self.failures += 1
        if len(self._named) < MOST_NAMED:
            which = f"item {number}" if key is None else f"item {number} ({key})"
            self._named.append(f"{which}: {type(error).__name__}: {str(error)[:200]}")
            self._log(f"aiflow: {self._name}: {self._named[-1]}", True)

    def _line(self, now: float) -> None:
        self._line_at = now
        ended, total = self.count + self.failures, self.total
        if self._next is not None:
            self._next = (ended // self._step + 1) * self._step
        took = max(now - self._began, 1e-6)
        rate = ended / took
        speed = f"{rate:,.1f} items/s" if rate >= 1 else f"{60 * rate:,.1f} items/min"
        share, read = "" if not total else f" of {total:,} ({100 * ended // total} %)", None
        left = ""
        if total is None and (read := self._read_share()):
            # What is read ahead of the workers is little beside a file that needs lines.
            self._part = int(read * LINES)
            share = f" (about {100 * read:.0f} % of the file)"
            if read < 1:
                left = f", about {timedelta(seconds=round(took * (1 - read) / read))} left"
        if total and ended < total:
            left = f", {timedelta(seconds=round((total - ended) / rate))} left"
        failed = f", {self.failures:,} failed" if self.failures else ""
        message = f"{ended:,}{share}, {speed}{left}{failed}"
        self._log(f"aiflow: {self._name}: {message}", False)
        self._told(ended, total, f"{self._name}: {message}")

    def hopeless(self, rules: MapRules) -> bool:
        """
        Say whether more items failed already than may, whatever becomes of the rest.

        :param rules: the author's options.
        """
        return self.total is not None and rules.too_many(self.failures, self.total)

    def complaint(self, rules: MapRules, run_id: str) -> str:
        """
        Say why a map fails.

        :param rules: the author's options.
        :param run_id: of the run.
        """
        more = f"; and {self.failures - len(self._named):,} more" if self.failures > len(self._named) else ""
        return (
            f"'{self._name}': {self.failures:,} items failed, more than on_item_error={rules.on_item_error} lets: "
            f"{'; '.join(self._named)}{more}. What succeeded is recorded. They are listed by: "
            f"aiflow batch failed {run_id}"
        )

    def ended(self, total: int) -> None:
        """
        Say how the map ended, where it is worth a line.

        :param total: how many items there were.
        """
        if self.failures:
            more = f", and {self.failures - len(self._named):,} more" if self.failures > len(self._named) else ""
            self._log(f"aiflow: {self._name}: {self.failures:,} of {total:,} items failed{more}", True)
        elif total > MOST_ITEM_LINES and self._clock.monotonic() > self._line_at:
            took = timedelta(seconds=round(self._clock.monotonic() - self._began))
            self._log(f"aiflow: {self._name}: all {total:,} items done in {took}", False)
