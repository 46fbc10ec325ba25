"""Follow one run of the nightly batch to its end, and kill its task at the chosen points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from airflow_aiflow.demo.follow import Progress
from airflow_aiflow.demo.kill import kill_tree, pages_at
from airflow_aiflow.demo.run_watch import RunWatch

#: The DAG, its task, and the name of the step that embeds.
DAG, TASK, STEP = "nightly_embeddings", "embed", "paragraph"
DAG_FILE = "nightly_embeddings.py"


@dataclass(slots=True, kw_only=True)
class NightWatch(RunWatch):
    """
    Watch one night.

    :param items: how many vectors the run ends with.
    """

    dag: ClassVar[str] = DAG
    task: ClassVar[str] = TASK

    items: int
    #: What was recorded at each kill.
    kills: list[int] = field(default_factory=list)
    _killed: Progress | None = None

    def until_end(self) -> str:
        """
        Watch and kill until Airflow says that the run has ended.

        :return: Airflow's word for the end.
        :raises StackError: nothing moves any more; the end of the task's log is in the message.
        """
        return self._follow()

    def _take_note(self, before: Progress | None, seen: Progress, now: float) -> None:
        killed = self._killed
        if killed is not None and seen.fence > killed.fence and seen.pages > killed.pages:
            self._killed = None
            self.screen.say(f"  attempt {seen.attempt} goes on behind the {killed.pages:,} that were recorded")
        what = "killed, Airflow retries" if self._killed is not None else "embedding"
        self.screen.show(seen.pages, what)

    def _maybe_kill(self, seen: Progress) -> None:
        number, thresholds = len(self.kills), pages_at(self.points, self.items)
        if self._killed is not None or number == len(thresholds) or seen.ended or seen.pages < thresholds[number]:
            return
        if seen.pages >= self.items or not kill_tree(seen.owner):
            return
        self.kills.append(seen.pages)
        self._killed = seen
        self.screen.say(
            f"  killed the task's process {seen.owner.pid} by SIGKILL, {seen.pages:,} of {self.items:,} recorded"
        )
