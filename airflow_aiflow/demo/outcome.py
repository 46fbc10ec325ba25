"""
What the run showed, in numbers, and whether the promises held.

What a plain task would have paid is computed, not run: a task that keeps nothing begins with the first page again after
each kill, so it pays again for every call whose answer was there when it was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from airflow_aiflow.demo.kill import Victim

#: Model calls in flight at once: the default of ``flow.llm_map``. So many answers a kill can lose at most.
MAX_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Kill:
    """
    One kill.

    :param at: percent of the pages at which it was asked for.
    :param pages: pages whose summary was recorded.
    :param calls: all model calls that were recorded.
    :param processes: how many processes were killed.
    :param lost: seconds until the next attempt had recorded something new.
    :param found: seconds until recovery had found it; ``None``: it was Airflow's to find, or nobody did.
    """

    at: float
    pages: int
    calls: int
    processes: int
    lost: float
    found: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Everything that was counted.

    :param state: ``succeeded`` or ``failed``.
    :param calls_made: requests that the model server counted; of a real model, the answers that the ledger recorded.
    :param counted_at: ``model server`` or ``ledger``.
    :param emails: mails that the SMTP sink took.
    :param records: records that the service created.
    :param kills_wanted: how many kills were asked for.
    :param seconds: from the trigger to the end of the run.
    :param first_page: seconds from the command's start to the first recorded page, the start of the stack included.
    :param cost: US dollars, where prices are known.
    :param victim: what was killed: the task's process, or its worker.
    """

    state: str
    documents: int
    skipped: int
    pages: int
    kills: tuple[Kill, ...]
    kills_wanted: int
    attempts: int
    calls_made: int
    counted_at: str
    emails: int
    records: int
    seconds: float
    first_page: float | None
    cost: float | None
    report: str | None
    table: str | None
    ui: str
    run_id: str
    victim: Victim = "task"

    @property
    def calls_needed(self) -> int:
        """One call for each page and one for each document."""
        return self.pages + self.documents

    @property
    def calls_plain(self) -> int:
        """Count the calls that a task would have made that keeps nothing."""
        return self.calls_needed + sum(kill.calls for kill in self.kills)

    @property
    def calls_saved(self) -> int:
        """Count the calls that a plain task would have paid for and this run did not."""
        return self.calls_plain - self.calls_made

    @property
    def seconds_lost(self) -> float:
        """Sum up the seconds from each kill to the next new result."""
        return sum(kill.lost for kill in self.kills)

    def broken(self) -> Iterator[str]:
        """Yield, in words, each promise that did not hold."""
        if self.state != "succeeded":
            yield f"the run ended as {self.state}"
        if len(self.kills) != self.kills_wanted:
            yield f"{len(self.kills)} of {self.kills_wanted} kills came in time: too few pages, try more documents"
        most = self.calls_needed + len(self.kills) * MAX_WORKERS
        if not self.calls_needed <= self.calls_made <= most:
            yield f"{self.calls_made} model calls were made, where {self.calls_needed} to {most} are right"
        if self.emails != 1:
            yield f"{self.emails} e-mails were sent instead of 1"
        if self.records != 1:
            yield f"{self.records} records were created instead of 1"
        if self.victim == "worker" and any(kill.found is None for kill in self.kills):
            yield "recovery did not find every kill"

    def as_json(self) -> dict[str, Any]:
        """Give it as one flat JSON object; the kills by themselves are in ``killed``."""
        facts = asdict(self)
        killed = facts.pop("kills")
        return {
            **facts,
            "kills": len(killed),
            "killed": [{**kill, "lost": round(kill["lost"], 2), "found": _rounded(kill["found"])} for kill in killed],
            "calls_needed": self.calls_needed,
            "calls_plain": self.calls_plain,
            "calls_saved": self.calls_saved,
            "seconds": round(self.seconds, 2),
            "seconds_lost": round(self.seconds_lost, 2),
            "first_page": _rounded(self.first_page),
            "broken": list(self.broken()),
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
