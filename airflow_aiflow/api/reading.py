"""What the reading and answering routes work with, put together once a process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, Protocol

from airflow_aiflow.api.looks import Looks
from airflow_aiflow.durable.clear_preview import Instance
from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.figures import Figures
from airflow_aiflow.durable.inbox import Inbox, Word
from airflow_aiflow.durable.items import ItemLedger
from airflow_aiflow.durable.limit import LimitLedger
from airflow_aiflow.durable.ports import ArtifactStore
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres_overview import PostgresOverview
from airflow_aiflow.storage.postgres_runs import PostgresRuns
from airflow_aiflow.storage.postgres_timeline import PostgresTimeline

#: Things that wait which are counted: a page shows "more than" beyond.
MOST_WAITING = 1_000

#: Commits of this server whose times are remembered.
COMMITS = 101


@dataclass(frozen=True, slots=True)
class LatestRun:
    """Hold a DAG run as Airflow has it."""

    run_id: str
    state: str
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClearPlan:
    """
    Hold what Airflow says of a clear.

    :param instances: that it would clear.
    :param downstream: task -> tasks right below it.
    :param assets: as its REST API lists them.
    """

    instances: Sequence[Instance]
    downstream: Mapping[str, Sequence[str]]
    assets: Sequence[Mapping[str, Any]] = ()


class AirflowSide(Protocol):
    """Ask Airflow itself, inside its API server."""

    def latest(self, dag_id: str, limit: int) -> Sequence[LatestRun]:
        """List the last runs of a DAG, the latest first."""

    def plan(
        self,
        dag_id: str,
        run_id: str,
        tasks: Sequence[str | tuple[str, int]] | None,
        *,
        downstream: bool,
        upstream: bool,
        only_failed: bool,
    ) -> ClearPlan:
        """
        Say what a clear would do.

        :raises LookupError: if Airflow does not know the run or a task.
        """

    def heartbeat_timeout(self) -> float:
        """Give the seconds after which Airflow alone finds a dead worker's task."""


class Reading:
    """
    Hold it.

    :param undo: notes that a person has taken an effect back: (effect, number, by, reason).
    :param seal_key: of the deployment; ``None``: none is configured.
    """

    def __init__(
        self,
        *,
        timeline: PostgresTimeline,
        overview: PostgresOverview,
        runs: PostgresRuns,
        inbox: Inbox,
        items: ItemLedger,
        limits: LimitLedger,
        figures: Looks[Figures],
        cipher: PayloadCipher,
        store: Callable[[], ArtifactStore],
        airflow: AirflowSide,
        undo: Callable[[EffectRecord, int, str, str], Word],
        seal_key: bytes | None = None,
    ) -> None:
        self.timeline, self.overview, self.runs, self.inbox = timeline, overview, runs, inbox
        self.items, self.limits, self.figures = items, limits, figures
        self.cipher, self.store, self.airflow, self.undo, self.seal_key = cipher, store, airflow, undo, seal_key
        #: A shared look at what waits, for counts.
        self.waiting = Looks(lambda: inbox.waiting(limit=MOST_WAITING))
        self._commits: deque[float] = deque(maxlen=COMMITS)

    def commit_seconds(self) -> float:
        """Give the median of this server's latest small commits."""
        self._commits.append(self.figures.get().commit_seconds)
        return median(self._commits)
