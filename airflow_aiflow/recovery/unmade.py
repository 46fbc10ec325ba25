"""
Make the DAG runs of submissions that a server wrote down and died.

Through Airflow's REST API, as everything that recovery does. The run's id follows from the submission's key: whoever
makes it second is told that it is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_aiflow.durable.hold import is_held
from airflow_aiflow.durable.run_view import ExecutionView, RunSummary, StepView
from airflow_aiflow.durable.submission import Submission, Submissions
from airflow_aiflow.durable.submitting import SubmissionService
from airflow_aiflow.exceptions import AirflowRefusedError, SubmissionRefusedError
from airflow_aiflow.hooks.airflow_api import AirflowApi, run_path

#: Seconds that the server which wrote a row gets to make its run.
OWN_SECONDS = 10.0

#: Seconds that an API server gets beyond the grace of a cancel: it ends a run more gently than REST can.
SERVERS_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class RestRun:
    """
    Show a DAG run.

    :param state: Airflow's word.
    :param held: whether nothing of it starts before it is let go.
    """

    state: str
    held: bool = False


class RestRuns:
    """
    Make runs through Airflow's REST API; the rest is for the server.

    :param api: Airflow's.
    """

    def __init__(self, api: AirflowApi) -> None:
        self._api = api
        #: What was made here, and by nobody at the same time.
        self.made: list[Submission] = []

    def make(self, submission: Submission) -> None:
        """
        Make the run, or find it made.

        :raises LookupError: if the DAG is gone.
        :raises SubmissionRefusedError: if it can't be made.
        :raises AirflowRefusedError: if Airflow refuses for another reason: the next pass tries again.
        """
        body: Mapping[str, Any] = {
            "dag_run_id": submission.run_id,
            "logical_date": None,
            "conf": dict(submission.input),
            "note": f"submission {submission.submission_id} of {submission.user}",
        }
        path = run_path(submission.pipeline, submission.run_id).rpartition("/")[0]
        try:
            self._api.request("POST", path, body=body)
        except AirflowRefusedError as error:
            if error.status == 409:
                return
            if error.status == 404:
                raise LookupError(f"there is no pipeline {submission.pipeline!r}") from error
            if error.status in (400, 422):
                raise SubmissionRefusedError(f"{submission.pipeline}: no run can be made: {error}") from error
            raise
        self.made.append(submission)

    def end(self, submission: Submission) -> None:
        """End the run of one that was cancelled while it was made; what has an outcome keeps it."""
        run = self.look(submission)
        if run is None or run.state not in ("queued", "running"):
            return
        self._api.request("PATCH", run_path(submission.pipeline, submission.run_id), body={"state": "failed"})

    def check(self, pipeline: str, given: Any) -> None:
        """Refuse nothing: what stands in the ledger was checked."""

    def look(self, submission: Submission) -> RestRun | None:
        """Give the run as it stands."""
        try:
            run = self._api.run(submission.pipeline, submission.run_id)
            return RestRun(str(run["state"]), is_held(datetime.fromisoformat(run["run_after"])))
        except AirflowRefusedError as error:
            if error.status == 404:
                return None
            raise

    def look_many(self, submissions: Sequence[Submission]) -> dict[tuple[str, str], RestRun]:
        """Give the runs as they stand, one after the other."""
        found = {one.run: self.look(one) for one in submissions}
        return {run: view for run, view in found.items() if view is not None}

    def hold(self, submission: Submission) -> None:
        """Leave it to the API server, the next time that somebody looks: REST has no word for it."""

    def release(self, submission: Submission, waiting: Collection[tuple[str, int]]) -> None:
        """Leave it to the API server likewise."""

    def stop(self, submission: Submission, keep: Collection[tuple[str, int]]) -> bool:
        """Let attempts end by themselves: they know the wish from the ledger, and get their time."""
        return True

    def again(self, submission: Submission, *, only_failed: bool) -> bool:
        """Run nothing again."""
        return False

    def result(self, submission: Submission) -> Any:
        """Give nothing."""
        raise LookupError("results are read in Airflow's API server")


class _NoExecutions:
    """Read nothing: what has no run has no executions, and what has one is only looked at for its end."""

    def executions(self, dag_id: str, run_id: str) -> list[ExecutionView]:
        return []

    def steps(self, dag_id: str, run_id: str, *, limit: int) -> list[StepView]:
        return []

    def summaries(self, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], RunSummary]:
        return {}


def make_unmade(submissions: Submissions, api: AirflowApi) -> list[Submission]:
    """
    Make the runs that nobody made.

    :param submissions: the ledger's.
    :param api: Airflow's.
    :return: whose runs were made here.
    """
    runs = RestRuns(api)
    _service(submissions, runs).heal(older_than=OWN_SECONDS)
    return runs.made


def end_wished(submissions: Submissions, api: AirflowApi) -> int:
    """
    End what was cancelled or is over its deadline, where the API server that was told so has died, and note the ends
    that somebody is to be told of.

    :param submissions: the ledger's.
    :param api: Airflow's.
    :return: how many there were.
    """
    service, rows = _service(submissions, RestRuns(api)), submissions.pressing()
    service.each(rows, service.press)
    return len(rows)


def _service(submissions: Submissions, runs: RestRuns) -> SubmissionService:
    from airflow_aiflow.config import cancel_grace

    return SubmissionService(
        submissions, _NoExecutions(), runs, window_days=1, cancel_grace=cancel_grace() + SERVERS_SECONDS
    )
