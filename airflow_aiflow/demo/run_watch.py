"""Follow a run of a demo to its end: what every demo's watch does between two looks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_aiflow.demo.follow import Follower, Progress
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.airflow_client import END_STATES, AirflowClient

#: Seconds between two looks at the ledger: a few pages at most go by.
POLL = 0.02
#: Seconds between two questions to Airflow, which cost far more than a look at the ledger.
ASK_AIRFLOW = 0.5
#: Seconds without any progress after which something is wrong: a task starts within a few, a model answers in less.
STALLED = 180.0
#: Lines of the task's log that an error shows.
LOG_LINES = 20


@dataclass(slots=True, kw_only=True)
class RunWatch(ABC):
    """
    Watch one run.

    :param points: percentages of what is recorded first at which to kill.
    :param mend: called now and then: starts again what of the stack has ended.
    """

    dag: ClassVar[str]
    task: ClassVar[str]

    follower: Follower
    client: AirflowClient
    run_id: str
    points: Sequence[float]
    screen: Screen
    mend: Callable[[], object]
    last: Progress | None = None
    _moved: float = 0.0

    @abstractmethod
    def _take_note(self, before: Progress | None, seen: Progress, now: float) -> None:
        """
        Tell of what is new.

        :param before: what was seen before; ``None``: this is the first look.
        """

    @abstractmethod
    def _maybe_kill(self, seen: Progress) -> None:
        """Kill at the next point."""

    def _goes_on(self, state: str) -> bool:
        """Say whether a state of Airflow's is not the end yet."""
        return state not in END_STATES

    def _follow(self) -> str:
        """
        Watch and kill until Airflow says that the run has ended.

        :return: Airflow's word for the end.
        :raises StackError: nothing moves any more; the end of the task's log is in the message.
        """
        asked = self._moved = time.monotonic()
        state = ""
        while self._goes_on(state):
            now = time.monotonic()
            seen = self.follower.look()
            if seen is not None:
                before, self.last = self.last, seen
                if before is None or _figures(before) != _figures(seen):
                    self._moved = now
                self._take_note(before, seen, now)
                self._maybe_kill(seen)
            if now - asked >= ASK_AIRFLOW:
                asked = now
                self.mend()
                state = str(self.client.run(self.dag, self.run_id)["state"])
            if now - self._moved > STALLED:
                raise StackError(f"the run {self.run_id} has not moved for {STALLED:.0f} s; {self._log_end()}")
            time.sleep(POLL)
        if state == "failed":
            self.screen.say(f"The run failed; {self._log_end()}")
        self.last = self.follower.look() or self.last
        return state

    def _log_end(self) -> str:
        attempt = max(1, int(self.client.task_instance(self.dag, self.run_id, self.task)["try_number"]))
        lines = self.client.logs(self.dag, self.run_id, self.task, attempt).splitlines()[-LOG_LINES:]
        return "the end of the task's log:\n" + "\n".join(lines)


def _figures(seen: Progress) -> tuple[int, int, int]:
    return seen.fence, seen.pages, seen.assessed
