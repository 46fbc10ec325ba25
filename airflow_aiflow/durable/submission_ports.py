"""What taking and moving submissions needs from outside: Airflow's runs, and the ledger's view of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_aiflow.durable.progress import RunProgress
from airflow_aiflow.durable.run_view import ExecutionView, RunSummary, StepView
from airflow_aiflow.durable.submission import Submission

#: A task instance of a run: (task id, map index).
Instance = tuple[str, int]


@dataclass(frozen=True, slots=True)
class StoredResult:
    """
    Name a result that is in the artifact store, as Airflow's serialiser and the payload's codec have written it.

    :param sha256: its address; ``None``: it is a list, of which each task instance gave one, and some are there.
    :param read: gives the value itself; takes as much memory as the value does.
    """

    sha256: bytes | None
    read: Callable[[], Any]


class Run(Protocol):
    """Be a DAG run as Airflow tells it."""

    @property
    def state(self) -> str:
        """Airflow's word."""

    @property
    def held(self) -> bool:
        """Whether nothing of it starts before it is let go."""


class Runs(Protocol):
    """
    Make, read, hold and end DAG runs: ``api.airflow_runs`` does in the server, ``recovery.unmade`` from outside.

    Each method may be repeated: what is so already stays so.
    """

    def check(self, pipeline: str, given: Any) -> None:
        """Refuse what can't become a run."""

    def make(self, submission: Submission) -> None:
        """Make the run, or find it made."""

    def look(self, submission: Submission) -> Run | None:
        """Give the run as it stands."""

    def look_many(self, submissions: Sequence[Submission]) -> Mapping[tuple[str, str], Run]:
        """Give the runs as they stand, by DAG id and run id; those that are gone are not there."""

    def hold(self, submission: Submission) -> None:
        """Let nothing more of the run start, until it is let go. What runs goes on."""

    def release(self, submission: Submission, waiting: Collection[Instance]) -> None:
        """Let the run go on; ``waiting``: what parked for the hold and comes back at once."""

    def stop(self, submission: Submission, keep: Collection[Instance]) -> bool:
        """
        Let nothing more of the run start, and end what is at work but ``keep``.

        :return: whether any of ``keep`` is still to end by itself.
        """

    def end(self, submission: Submission) -> None:
        """End the run, and what is at work."""

    def again(self, submission: Submission, *, only_failed: bool) -> bool:
        """Clear the run."""

    def result(self, submission: Submission) -> Any:
        """Give what the result's task returned; a large one as a ``StoredResult``, unread."""


class ProgressReader(Protocol):
    """Tell how far runs are."""

    def of_run(self, dag_id: str, run_id: str) -> RunProgress | None:
        """Look at a run; ``None``: no durable task of it is at work."""


class RunReader(Protocol):
    """Read runs from the ledger."""

    def executions(self, dag_id: str, run_id: str) -> Sequence[ExecutionView]:
        """List a run's executions."""

    def steps(self, dag_id: str, run_id: str, *, limit: int) -> Sequence[StepView]:
        """List the recorded steps of a run's current generations."""

    def summaries(self, runs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], RunSummary]:
        """Sum up many runs, in one query; those of which no durable task ever ran are not there."""
