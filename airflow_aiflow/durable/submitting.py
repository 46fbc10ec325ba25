"""
Take submissions and follow them: row first, run from the row, state from the run and the ledger.

Nothing is kept in a process: a request may meet any server, and any of them may be killed at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_aiflow.durable.asking_many import ask_many
from airflow_aiflow.durable.callback import CallbackRules
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.hold import HELD
from airflow_aiflow.durable.moving import CANCEL_GRACE, IllegalMoveError, Moves, seen
from airflow_aiflow.durable.pace import Pace
from airflow_aiflow.durable.progress import RunProgress
from airflow_aiflow.durable.run_view import ExecutionView, RunSummary, StepView, summary
from airflow_aiflow.durable.submission import (
    Filter,
    Submission,
    SubmissionRequest,
    Submissions,
    SubmissionState,
    may_move,
)
from airflow_aiflow.durable.submission_ports import ProgressReader, RunReader, Runs
from airflow_aiflow.exceptions import AirflowUnavailableError, LedgerUnavailableError, SubmissionRefusedError

log = logging.getLogger(__name__)

#: Rows of one healing round: what a server that was killed left behind is a handful.
HEALED = 100

#: Submissions of one round whose end somebody waits for: Airflow is asked about them in one query.
PRESSED = 200

__all__ = ["IllegalMoveError", "KeyInUseError", "Standing", "SubmissionService"]


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


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Show a submission as it stands.

    :param pause_reason: why it is paused; ``None``: it is not.
    :param attempts: that its tasks took so far, the first ones included; ``None``: not counted, as in a list.
    :param steps: recorded so far, or ``None`` likewise; so are calls and cost.
    :param waits_for: numbers of what waits for a person.
    :param progress: of its tasks at work; ``None``: there are none, or it was not asked for, as in a list.
    """

    submission: Submission
    pause_reason: str | None = None
    attempts: int | None = None
    steps: int | None = None
    calls: int | None = None
    cost: Decimal | None = None
    waits_for: tuple[int, ...] = ()
    progress: RunProgress | None = None


class SubmissionService(Moves):
    """
    Take submissions, and tell how they stand.

    :param submissions: the ledger's.
    :param reader: of executions.
    :param runs: Airflow's.
    :param window_days: for which a key is one task's.
    :param pace: of one user's new submissions; ``None``: any.
    :param cancel_grace: seconds that attempts get to end between steps.
    :param callbacks: to whom ends may be told; ``None``: to nobody.
    :param progress: of runs; ``None``: nobody asks for it here.
    """

    def __init__(
        self,
        submissions: Submissions,
        reader: RunReader,
        runs: Runs,
        *,
        window_days: float,
        pace: Pace | None = None,
        cancel_grace: float = CANCEL_GRACE,
        callbacks: CallbackRules | None = None,
        progress: ProgressReader | None = None,
    ) -> None:
        super().__init__(submissions, runs, cancel_grace=cancel_grace)
        self._reader = reader
        self._window_days = window_days
        self._pace = pace
        self._callbacks = callbacks
        self._progress = progress

    def submit(self, request: SubmissionRequest, ready: Callable[[], None] = lambda: None) -> tuple[Submission, bool]:
        """
        Write the outbox row; the run is made by ``make``, after the client has its answer.

        :param ready: called before the row of a new one is written; may refuse it.
        :return: the submission, and whether it is new.
        :raises LookupError: if there is no such pipeline.
        :raises SubmissionRefusedError: if it can't become a run; nothing is written.
        :raises KeyInUseError: if the key belongs to a request with another input.
        :raises TooFastError: if the user hands in faster than is allowed.
        """
        if request.callback_url is not None:
            if self._callbacks is None:
                raise SubmissionRefusedError("callbacks are off in this deployment", "/callback_url")
            self._callbacks.target(request.callback_url)
        try:
            self._runs.check(request.pipeline, request.input)
        except (LookupError, SubmissionRefusedError):
            # A repeat finds its task, also where the DAG takes nothing new now.
            known = self._submissions.find(request)
            if known is None or known.fingerprint != request.fingerprint:
                raise
            return known, False
        ready()
        found, new = self._submissions.submit(request, window_days=self._window_days, pace=self._pace)
        if found.fingerprint != request.fingerprint:
            raise KeyInUseError(found, request.fingerprint)
        failpoint("after_submit")
        return found, new

    def make(self, submission: Submission) -> None:
        """
        Make the run of an outbox row. Made by two at once it is one run: its id follows from the key.

        :param submission: not yet made.
        """
        if submission.hold_asked and not submission.cancel_asked and not submission.overdue:
            return  # once it is let go
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
            if now.state.finished:
                self._runs.end(now)  # cancelled in between, when there was no run to end
            # Else the next look ends it in steps: it may have been found made, and be at work.
        elif now is not None and now.hold_asked:
            self._hold_as_wished(now, ())

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
                self._submissions.put_off(row.submission_id)
        self.each(self._submissions.late(older_than=older_than, limit=HEALED), self._end_and_check)
        return len(rows)

    def _end_and_check(self, row: Submission) -> None:
        self._runs.end(row)
        self._submissions.checked(row.submission_id)

    @staticmethod
    def each(rows: Sequence[Submission], step: Callable[[Submission], object]) -> None:
        """
        Take a step with each of many: one that Airflow refuses must not keep the others from theirs.

        :raises AirflowUnavailableError: if Airflow does not answer: no other row is better off.
        :raises LedgerUnavailableError: likewise.
        """
        for row in rows:
            try:
                step(row)
            except (AirflowUnavailableError, LedgerUnavailableError):
                raise
            except Exception as error:
                log.warning("aiflow: submission %s could not be brought on: %s", row.submission_id, error)

    def press_on(self) -> int:
        """
        Bring on what somebody waits for without looking: what was cancelled, is over its deadline, has a callback.

        :return: how many there are.
        """
        rows = self._submissions.pressing(limit=PRESSED)
        wished = [row for row in rows if row.cancel_asked or row.overdue]
        self.each(wished, self.standing)
        self._note_ends([row for row in rows if row not in wished])
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
        if not submission.made and submission.state is SubmissionState.QUEUED and submission.hold_asked:
            return Standing(submission, pause_reason=HELD, attempts=0, steps=0, calls=0, cost=Decimal(0))
        views = self._reader.executions(submission.pipeline, submission.run_id) if submission.made else []
        run = self._runs.look(submission) if submission.made else None
        if self._call_off(submission, run):
            submission = self._submissions.get(submission.submission_id) or submission
            views = self._reader.executions(submission.pipeline, submission.run_id)
        if submission.made and self._carry_on(submission, run, views):
            submission = self._submissions.get(submission.submission_id) or submission
            run = self._runs.look(submission)
        state, reason = seen(submission, run, summary(views)) if submission.made else (submission.state, None)
        if state is not submission.state and may_move(submission.state, state):
            self._submissions.moved(submission.submission_id, submission.state, state)
        now = self._submissions.get(submission.submission_id) or submission
        return Standing(
            now,
            pause_reason=reason if now.state is state else None,
            attempts=sum(view.attempt for view in views),
            steps=sum(view.steps for view in views),
            calls=sum(view.calls for view in views),
            cost=sum((view.cost for view in views), Decimal(0)),
            waits_for=tuple(question.number for view in views for question in view.questions),
            progress=self._progress_of(now, views),
        )

    def _progress_of(self, submission: Submission, views: Sequence[ExecutionView]) -> RunProgress | None:
        if self._progress is None or submission.state.finished or not any(view.live for view in views):
            return None
        return self._progress.of_run(submission.pipeline, submission.run_id)

    def page(self, wanted: Filter) -> list[Standing]:
        """
        List submissions; those that have not ended are looked at, all in one query each of Airflow and of the ledger.

        :param wanted: which.
        """
        return self._note_ends(self._submissions.page(wanted))

    def _note_ends(self, rows: Sequence[Submission]) -> list[Standing]:
        """Look at many and move them; what was wished of them others bring on. One that can't be looked at stays."""
        open_ = [one for one in rows if one.made and not one.state.settled]
        if not open_:
            return [Standing(one) for one in rows]
        runs = self._runs.look_many(open_)

        def look(part: Sequence[Submission]) -> dict[UUID, tuple[SubmissionState, str | None]]:
            sums = self._reader.summaries([one.run for one in part])
            return {one.submission_id: seen(one, runs.get(one.run), sums.get(one.run, RunSummary())) for one in part}

        looks = ask_many(open_, look, _name)
        moves = [(one, looks[one.submission_id][0]) for one in open_ if one.submission_id in looks]
        news = [(one, new) for one, new in moves if new is not one.state]
        moved = ask_many(news, self._submissions.moved_many, lambda move: _name(move[0]))
        return [_looked_at(one, looks.get(one.submission_id), moved) for one in rows]

    def try_make(self, submission: Submission) -> None:
        """
        Make the run of an outbox row now, where that is possible.

        :param submission: not yet made.
        """
        try:
            self.make(submission)
        except Exception as error:  # the row is there: recovery makes the run
            log.warning("aiflow: the run of submission %s was not made yet: %s", submission.submission_id, error)

    def steps(self, submission: Submission, *, limit: int) -> Sequence[StepView]:
        """
        List what its tasks have recorded in their current generations, task by task in the order of recording.

        :param submission: as it was seen last.
        :param limit: at most so many.
        """
        return self._reader.steps(submission.pipeline, submission.run_id, limit=limit)

    def result(self, submission: Submission) -> Any:
        """
        Give the result of one that has succeeded.

        :param submission: as it was seen last.
        """
        return self._runs.result(submission)


def _name(one: Submission) -> str:
    return f"submission {one.submission_id}"


def _looked_at(
    one: Submission, look: tuple[SubmissionState, str | None] | None, moved: Mapping[UUID, datetime | None]
) -> Standing:
    if look is None:
        return Standing(one)
    if one.submission_id in moved:
        one = replace(one, state=look[0], finished_at=moved[one.submission_id])
    return Standing(one, pause_reason=look[1] if one.state is look[0] else None)
