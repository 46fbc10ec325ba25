"""
Take submissions and follow them: row first, run from the row, state from the run and the ledger.

Nothing is kept in a process: a request may meet any server, and any of them may be killed at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.durable.submission import (
    Filter,
    Submission,
    SubmissionRequest,
    Submissions,
    SubmissionState,
    may_move,
)
from airflow_aiflow.exceptions import AirflowUnavailableError, LedgerUnavailableError, SubmissionRefusedError

log = logging.getLogger(__name__)

#: Rows of one healing round: what a server that was killed left behind is a handful.
HEALED = 100


class Run(Protocol):
    """Be a DAG run as Airflow tells it."""

    @property
    def state(self) -> str:
        """Airflow's word."""


class Runs(Protocol):
    """Make, read and end DAG runs: ``api.airflow_runs`` does in the server, ``recovery.unmade`` from outside."""

    def check(self, pipeline: str, given: Any) -> None:
        """Refuse what can't become a run."""

    def make(self, submission: Submission) -> None:
        """Make the run, or find it made."""

    def look(self, submission: Submission) -> Run | None:
        """Give the run as it stands."""

    def end(self, submission: Submission) -> None:
        """End the run."""

    def again(self, submission: Submission, *, only_failed: bool) -> bool:
        """Clear the run."""

    def result(self, submission: Submission) -> Any:
        """Give what the result's task returned."""


class RunReader(Protocol):
    """Read a run's executions from the ledger."""

    def executions(self, dag_id: str, run_id: str) -> Sequence[ExecutionView]:
        """List them."""


class KeyInUseError(SubmissionRefusedError):
    """
    The key is another request's.

    :param submission: whose key it is.
    :param given: the fingerprint of the request that came with it now.
    """

    def __init__(self, submission: Submission, given: bytes) -> None:
        self.submission = submission
        self.given = given
        super().__init__(
            f"idempotency_key {submission.key!r} belongs to {submission.submission_id}, which has another input: give "
            f"another key for another task",
            "/idempotency_key",
        )


class IllegalMoveError(SubmissionRefusedError):
    """What is asked of a submission is not possible in its state."""


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Show a submission as it stands.

    :param pause_reason: why it is paused; ``None``: it is not.
    :param attempts: that its tasks took so far, the first ones included; ``None``: not counted, as in a list.
    :param steps: recorded so far, or ``None`` likewise; so are calls and cost.
    :param waits_for: numbers of what waits for a person.
    """

    submission: Submission
    pause_reason: str | None = None
    attempts: int | None = None
    steps: int | None = None
    calls: int | None = None
    cost: Decimal | None = None
    waits_for: tuple[int, ...] = ()


class SubmissionService:
    """
    Take submissions, and tell how they stand.

    :param submissions: the ledger's.
    :param reader: of executions.
    :param runs: Airflow's.
    :param window_days: for which a key is one task's.
    """

    def __init__(self, submissions: Submissions, reader: RunReader, runs: Runs, *, window_days: float) -> None:
        self._submissions = submissions
        self._reader = reader
        self._runs = runs
        self._window_days = window_days

    def submit(self, request: SubmissionRequest) -> tuple[Submission, bool]:
        """
        Write the outbox row; the run is made by ``make``, after the client has its answer.

        :return: the submission, and whether it is new.
        :raises LookupError: if there is no such pipeline.
        :raises SubmissionRefusedError: if it can't become a run; nothing is written.
        :raises KeyInUseError: if the key belongs to a request with another input.
        """
        try:
            self._runs.check(request.pipeline, request.input)
        except (LookupError, SubmissionRefusedError):
            # A repeat finds its task, also where the DAG takes nothing new now.
            known = self._submissions.find(request)
            if known is None or known.fingerprint != request.fingerprint:
                raise
            return known, False
        found, new = self._submissions.submit(request, window_days=self._window_days)
        if found.fingerprint != request.fingerprint:
            raise KeyInUseError(found, request.fingerprint)
        failpoint("after_submit")
        return found, new

    def make(self, submission: Submission) -> None:
        """
        Make the run of an outbox row. Made by two at once it is one run: its id follows from the key.

        :param submission: not yet made.
        """
        # One that a server made which was killed before it said so counts: it is noted, and ended where that is asked.
        if (submission.cancel_asked or submission.overdue) and self._runs.look(submission) is None:
            self._submissions.moved(submission.submission_id, submission.state, SubmissionState.CANCELLED)
            return
        try:
            self._runs.make(submission)
        except (LookupError, SubmissionRefusedError) as error:
            self._submissions.refuse(submission.submission_id, str(error))
            return
        failpoint("after_run_made")
        self._submissions.made(submission.submission_id)
        now = self._submissions.get(submission.submission_id)
        if now is not None and now.cancel_asked:
            self._runs.end(now)  # cancelled in between, when there was no run to end

    def heal(self, *, older_than: float) -> int:
        """
        Make the runs that a server has left unmade.

        :param older_than: seconds; younger rows are somebody's at this moment.
        :return: how many rows there were.
        :raises AirflowUnavailableError: if Airflow does not answer: no other row is better off.
        :raises LedgerUnavailableError: likewise.
        """
        rows = self._submissions.unmade(older_than=older_than, limit=HEALED)
        for row in rows:
            try:
                self.make(row)
            except (AirflowUnavailableError, LedgerUnavailableError):
                raise  # each row would wait for its time-out, and what comes after this as well
            except Exception as error:  # one row must not keep the others from their runs
                log.warning("aiflow: the run of submission %s could not be made: %s", row.submission_id, error)
        return len(rows)

    def get(self, submission_id: UUID) -> Submission | None:
        """
        Give a submission as it was seen last.

        :param submission_id: which one.
        """
        return self._submissions.get(submission_id)

    def standing(self, submission: Submission) -> Standing:
        """
        Look how a submission stands now, and move it there.

        :param submission: as it was seen last.
        """
        submission = self._submissions.get(submission.submission_id) or submission
        self._end_late(submission)
        views = self._reader.executions(submission.pipeline, submission.run_id) if submission.made else []
        state, reason = self._seen(submission, views)
        if state is not submission.state and may_move(submission.state, state):
            self._submissions.moved(submission.submission_id, submission.state, state)
        now = self._submissions.get(submission.submission_id) or submission
        return Standing(
            now,
            pause_reason=reason if now.state is SubmissionState.PAUSED else None,
            attempts=sum(view.attempt for view in views),
            steps=sum(view.steps for view in views),
            calls=sum(view.calls for view in views),
            cost=sum((view.cost for view in views), Decimal(0)),
            waits_for=tuple(question.number for view in views for question in view.questions),
        )

    def page(self, wanted: Filter) -> list[Standing]:
        """
        List submissions; those that have not ended are looked at.

        :param wanted: which.
        """
        found = self._submissions.page(wanted)
        return [Standing(one) if one.state.finished else self.standing(one) for one in found]

    def _seen(self, submission: Submission, views: Sequence[ExecutionView]) -> tuple[SubmissionState, str | None]:
        if not submission.made:
            return submission.state, None
        run = self._runs.look(submission)
        if run is None:
            return SubmissionState.FAILED, None  # somebody deleted it
        if run.state == "success":
            return SubmissionState.SUCCEEDED, None
        if run.state == "failed":
            return (SubmissionState.CANCELLED if submission.cancel_asked else SubmissionState.FAILED), None
        if run.state == "queued":
            return SubmissionState.QUEUED, None
        states = [view.state for view in views]
        if ExecutionState.RUNNING not in states and ExecutionState.PAUSED in states:
            reasons = [view.pause_reason for view in views if view.state is ExecutionState.PAUSED]
            return SubmissionState.PAUSED, next((reason for reason in reasons if reason), "paused")
        return SubmissionState.RUNNING, None

    def cancel(self, submission: Submission) -> None:
        """
        End a submission; done twice it is done once. What had an outcome keeps it, an open effect is in doubt.

        :param submission: as it was seen last.
        :raises IllegalMoveError: if it has succeeded or failed.
        """
        if submission.state is SubmissionState.CANCELLED:
            self._end_late(submission)
            return
        if submission.state.finished:
            raise IllegalMoveError(f"it has {submission.state.value}: there is nothing to cancel")
        self._submissions.ask(submission.submission_id, cancel=True)
        failpoint("after_cancel_asked")
        if not submission.made:
            # Its maker sees the wish; one that made the run meanwhile is ended by the next look.
            self._submissions.moved(submission.submission_id, submission.state, SubmissionState.CANCELLED)
        self._runs.end(submission)

    def _end_late(self, submission: Submission) -> None:
        """End a run whose maker was killed between making it and seeing that it had been cancelled."""
        if submission.state is SubmissionState.CANCELLED and submission.cancel_asked and not submission.made:
            self._runs.end(submission)

    def retry(self, submission: Submission) -> None:
        """
        Run a finished submission again: what is recorded replays. Only a person's word reopens what has succeeded.

        :param submission: as it was seen last.
        :raises IllegalMoveError: if it has not finished, or its run is gone.
        """
        if not submission.state.finished:
            raise IllegalMoveError(f"it is {submission.state.value}: there is nothing to retry")
        old = submission.state
        gone = IllegalMoveError("its run is gone: submit it again under another key")
        if submission.made and self._runs.look(submission) is None:
            raise gone
        if not self._submissions.moved(submission.submission_id, old, SubmissionState.QUEUED, retry=True):
            return  # somebody else did at the same moment
        if not submission.made:
            self.try_make(self._submissions.get(submission.submission_id) or submission)
            return
        if not self._runs.again(submission, only_failed=old is not SubmissionState.SUCCEEDED):
            raise gone
        # Who looked between the two saw the run as it had ended, and said so.
        now = self._submissions.get(submission.submission_id)
        if now is not None and now.state.finished:
            self._submissions.moved(submission.submission_id, now.state, SubmissionState.QUEUED, retry=True)

    def try_make(self, submission: Submission) -> None:
        """
        Make the run of an outbox row now, where that is possible.

        :param submission: not yet made.
        """
        try:
            self.make(submission)
        except Exception as error:  # the row is there: recovery makes the run
            log.warning("aiflow: the run of submission %s was not made yet: %s", submission.submission_id, error)

    def result(self, submission: Submission) -> Any:
        """
        Give the result of one that has succeeded.

        :param submission: as it was seen last.
        """
        return self._runs.result(submission)
