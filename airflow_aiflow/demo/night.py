"""Follow one run of the nightly batch to its end, and kill its task at the chosen points."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from airflow_aiflow.demo.follow import Follower, Progress
from airflow_aiflow.demo.kill import kill_tree, pages_at
from airflow_aiflow.demo.screen import Screen
from airflow_aiflow.demo.watch import ASK_AIRFLOW, LOG_LINES, POLL, STALLED
from airflow_aiflow.exceptions import StackError
from airflow_aiflow.local.airflow_client import END_STATES, AirflowClient

#: The DAG, its task, and the name of the step that embeds.
DAG, TASK, STEP = "nightly_embeddings", "embed", "paragraph"
DAG_FILE = "nightly_embeddings.py"


@dataclass(slots=True)
class NightWatch:
    """
    Watch one run.

    :param items: how many vectors the run ends with.
    :param points: percentages of them at which to kill.
    """

    follower: Follower
    client: AirflowClient
    run_id: str
    items: int
    points: Sequence[float]
    screen: Screen
    mend: Callable[[], object]
    #: What was recorded at each kill.
    kills: list[int] = field(default_factory=list)
    last: Progress | None = None
    _killed: Progress | None = None
    _moved: float = 0.0

    def until_end(self) -> str:
        """
        Watch and kill until Airflow says that the run has ended.

        :return: Airflow's word for the end.
        :raises StackError: nothing moves any more; the end of the task's log is in the message.
        """
        thresholds = pages_at(self.points, self.items)
        asked = self._moved = time.monotonic()
        state = ""
        while state not in END_STATES:
            now = time.monotonic()
            seen = self.follower.look()
            if seen is not None:
                self._take_note(seen, now)
                self._maybe_kill(seen, thresholds)
            if now - asked >= ASK_AIRFLOW:
                asked = now
                self.mend()
                state = str(self.client.run(DAG, self.run_id)["state"])
            if now - self._moved > STALLED:
                raise StackError(f"the run {self.run_id} has not moved for {STALLED:.0f} s; {self._log_end()}")
            time.sleep(POLL)
        if state == "failed":
            self.screen.say(f"The run failed; {self._log_end()}")
        self.last = self.follower.look() or self.last
        return state

    def _take_note(self, seen: Progress, now: float) -> None:
        last, self.last = self.last, seen
        if last is None or (seen.fence, seen.pages) != (last.fence, last.pages):
            self._moved = now
        killed = self._killed
        if killed is not None and seen.fence > killed.fence and seen.pages > killed.pages:
            self._killed = None
            self.screen.say(f"  attempt {seen.attempt} goes on behind the {killed.pages:,} that were recorded")
        what = "killed, Airflow retries" if self._killed is not None else "embedding"
        self.screen.show(seen.pages, what)

    def _maybe_kill(self, seen: Progress, thresholds: Sequence[int]) -> None:
        number = len(self.kills)
        if self._killed is not None or number == len(thresholds) or seen.ended or seen.pages < thresholds[number]:
            return
        if seen.pages >= self.items or not kill_tree(seen.owner):
            return
        self.kills.append(seen.pages)
        self._killed = seen
        self.screen.say(
            f"  killed the task's process {seen.owner.pid} by SIGKILL, {seen.pages:,} of {self.items:,} recorded"
        )

    def _log_end(self) -> str:
        attempt = max(1, int(self.client.task_instance(DAG, self.run_id, TASK)["try_number"]))
        lines = self.client.logs(DAG, self.run_id, TASK, attempt).splitlines()[-LOG_LINES:]
        return "the end of the task's log:\n" + "\n".join(lines)
