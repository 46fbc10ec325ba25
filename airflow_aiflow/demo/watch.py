"""Follow a review to its end, and kill its task at the chosen points."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

from airflow_aiflow.demo.follow import DAG, TASK, Progress
from airflow_aiflow.demo.kill import Victim, kill_tree, kill_worker, pages_at
from airflow_aiflow.demo.outcome import Kill
from airflow_aiflow.demo.run_watch import RunWatch
from airflow_aiflow.local.airflow_client import END_STATES


@dataclass(frozen=True, slots=True)
class Watched:
    """
    What was seen.

    :param state: Airflow's word for the end.
    :param first_page: when the first page was recorded, by ``time.monotonic``.
    """

    state: str
    kills: tuple[Kill, ...]
    first_page: float | None
    last: Progress | None


@dataclass(slots=True)
class _Open:
    """A kill after which nothing new has been recorded yet."""

    at: float
    when: float
    processes: int
    before: Progress


@dataclass(slots=True, kw_only=True)
class Watch(RunWatch):
    """
    Watch one review.

    :param documents: how many verdicts the run ends with.
    :param pages: how many pages there are.
    :param victim: what is killed.
    """

    dag: ClassVar[str] = DAG
    task: ClassVar[str] = TASK

    documents: int
    pages: int
    victim: Victim = "task"
    _kills: list[Kill] = field(default_factory=list)
    _open: _Open | None = None
    _first_page: float | None = None

    def until_end(self) -> Watched:
        """
        Watch and kill until Airflow says that the run has ended.

        :raises StackError: nothing moves any more; the end of the task's log is in the message.
        """
        state = self._follow()
        if self._open is not None:
            self._close(time.monotonic())
        return Watched(state, tuple(self._kills), self._first_page, self.last)

    def _goes_on(self, state: str) -> bool:
        # A killed worker's task is set failed before it is cleared: for a moment the run may count as failed, too.
        return state not in END_STATES or (state == "failed" and self.victim == "worker" and self._open is not None)

    def _take_note(self, before: Progress | None, seen: Progress, now: float) -> None:
        if self._first_page is None and seen.pages:
            self._first_page = now
        if self._open is not None and seen.fence > self._open.before.fence and seen.fresh:
            kill = self._close(now)
            found = "" if kill.found is None else f"recovery found it {kill.found:.1f} s after the kill; "
            self.screen.say(f"  {found}attempt {seen.attempt} goes on, {kill.lost:.1f} s after the kill")
        self.screen.show(seen.pages + seen.assessed, self._doing(seen))

    def _doing(self, seen: Progress) -> str:
        if self._open is not None:
            return "killed, Airflow retries" if self.victim == "task" else "killed, to be found"
        return "summarising pages" if seen.pages < self.pages else "assessing documents"

    def _maybe_kill(self, seen: Progress) -> None:
        """
        Kill at the next point.

        Only while model calls are left: a kill between the mail and its record would rightly leave the mail in doubt,
        and a person would have to decide.
        """
        number, thresholds = len(self._kills), pages_at(self.points, self.pages)
        if self._open is not None or number == len(thresholds) or seen.ended:
            return
        if seen.pages < thresholds[number] or seen.assessed >= self.documents:
            return
        processes = (kill_tree if self.victim == "task" else kill_worker)(seen.owner)
        if processes:
            self._open = _Open(self.points[number], time.monotonic(), processes, seen)
            others = processes - 1 if self.victim == "task" else processes - 2
            below = f" and {others} below it" if others > 0 else ""
            above = "" if self.victim == "task" else "its supervisor and "
            hit = f"  killed {above}the task's process {seen.owner.pid}{below} by SIGKILL"
            self.screen.say(f"{hit}, {seen.pages} of {self.pages} pages recorded")

    def _close(self, now: float) -> Kill:
        """Note how long the open kill held the run up, and when it was found."""
        kill, self._open = self._open, None
        assert kill is not None
        lost, before = now - kill.when, kill.before
        ago = self.follower.found_ago(before.fence) if self.victim == "worker" else None
        found = None if ago is None else max(0.0, time.monotonic() - kill.when - ago)
        calls = before.pages + before.assessed
        self._kills.append(Kill(kill.at, before.pages, calls, kill.processes, lost, found))
        return self._kills[-1]
