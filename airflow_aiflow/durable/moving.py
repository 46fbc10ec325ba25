"""
Move submissions as clients wish, and bring to its end what was begun.

A wish stands in the ledger first, so that attempts at work learn it and any server can go on where one was killed;
Airflow is told after it. Whoever looks at a submission brings its wish a step on: each step may be taken twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.hold import HELD
from airflow_aiflow.durable.identity import UNDO
from airflow_aiflow.durable.run_view import ExecutionView, RunSummary
from airflow_aiflow.durable.submission import Submission, Submissions, SubmissionState, Wish, answer
from airflow_aiflow.durable.submission_ports import Instance, Run, Runs
from airflow_aiflow.exceptions import SubmissionRefusedError

#: Airflow's words for a run that has ended.
ENDED = ("success", "failed")

#: Seconds that attempts get to end between steps, once somebody cancelled their run: a model call in flight has two
#: minutes by itself.
CANCEL_GRACE = 120.0


class IllegalMoveError(SubmissionRefusedError):
    """What is asked of a submission is not possible in its state."""


def seen(submission: Submission, run: Run | None, found: RunSummary) -> tuple[SubmissionState, str | None]:
    """
    Say how a submission stands.

    :param submission: as it was seen last; its run was made.
    :param run: as Airflow tells it; ``None``: it is gone.
    :param found: what the ledger knows of it.
    :return: the state, and why it waits, where it does.
    """
    if run is None:
        return SubmissionState.FAILED, None  # somebody deleted it
    if run.state == "success":
        return SubmissionState.SUCCEEDED, None
    if run.state == "failed":
        return (SubmissionState.CANCELLED if submission.cancel_asked else SubmissionState.FAILED), None
    held = run.held and not submission.cancel_asked
    if run.state == "queued" and not found.paused:
        return SubmissionState.QUEUED, HELD if held else None
    if held and not found.live:
        return SubmissionState.PAUSED, HELD
    if run.state == "queued":
        return SubmissionState.QUEUED, None
    if not found.running and found.paused and not submission.cancel_asked:
        return SubmissionState.PAUSED, found.pause_reason or "paused"
    return SubmissionState.RUNNING, None


class Moves:
    """
    Cancel, pause, resume and retry.

    :param submissions: the ledger's.
    :param runs: Airflow's.
    :param cancel_grace: seconds that attempts get to end between steps.
    """

    def __init__(self, submissions: Submissions, runs: Runs, *, cancel_grace: float = CANCEL_GRACE) -> None:
        self._submissions = submissions
        self._runs = runs
        self._cancel_grace = cancel_grace

    def cancel(self, submission: Submission) -> None:
        """
        End a submission between steps; done twice it is done once. What had an outcome keeps it.

        :param submission: as it was seen last.
        :raises IllegalMoveError: if it has succeeded or failed.
        """
        if _checked(submission, "cancel") == "already":
            self._end_late(submission)
            return
        self._submissions.ask(submission.submission_id, cancel=True)
        failpoint("after_cancel_asked")
        if not submission.made and self._runs.look(submission) is not None:
            # Its maker was killed before it said so, and the run may be at work: it ends in steps, as any other.
            self._submissions.made(submission.submission_id)
        elif not submission.made:
            # Its maker sees the wish; one that made the run meanwhile is ended by the next look.
            self._submissions.moved(submission.submission_id, submission.state, SubmissionState.CANCELLED)
            self._runs.end(submission)

    def pause(self, submission: Submission) -> None:
        """
        Let nothing more of a submission start; what is at work parks at its next step.

        :param submission: as it was seen last.
        :raises IllegalMoveError: if it has ended, or is being cancelled.
        """
        _checked(submission, "pause")
        if not self._submissions.ask(submission.submission_id, hold=True):
            raise IllegalMoveError("it has ended, or is being cancelled: there is nothing to pause")
        failpoint("after_hold_asked")

    def resume(self, submission: Submission) -> None:
        """
        Let a paused submission go on where it was.

        :param submission: as it was seen last.
        :raises IllegalMoveError: if it has ended, or is being cancelled.
        """
        _checked(submission, "resume")
        if not self._submissions.ask(submission.submission_id, hold=False):
            raise IllegalMoveError("it has ended, or is being cancelled: there is nothing to resume")
        failpoint("after_resume_asked")
        if not submission.made:
            self.try_make(self._submissions.get(submission.submission_id) or submission)

    def retry(self, submission: Submission) -> None:
        """
        Run a finished submission again: what is recorded replays. Only a person's word reopens what has succeeded.

        :param submission: as it was seen last.
        :raises IllegalMoveError: if it has not finished, or its run is gone.
        """
        if _checked(submission, "retry") == "already":
            return
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
        """Make the run of an outbox row now, where that is possible."""
        raise NotImplementedError

    def press(self, submission: Submission) -> None:
        """
        Bring what was wished of a submission a step on, and note its end; for who can't look into the run.

        :param submission: as it stands, its run made.
        """
        run = self._runs.look(submission)
        if self._call_off(submission, run):
            submission = self._submissions.get(submission.submission_id) or submission
        if self._carry_on(submission, run, ()):
            submission = self._submissions.get(submission.submission_id) or submission
            run = self._runs.look(submission)
        if run is None or run.state in ENDED:
            state, _ = seen(submission, run, RunSummary())
            self._submissions.moved(submission.submission_id, submission.state, state)

    def _call_off(self, submission: Submission, run: Run | None) -> bool:
        """Cancel what is over its deadline. Who is at work is to be read after it: then nobody begins unknowing."""
        if submission.state.finished or run is None or run.state in ENDED:
            return False
        if submission.cancel_asked or not submission.overdue:
            return False
        return self._submissions.ask(submission.submission_id, cancel=True)

    def _carry_on(self, submission: Submission, run: Run | None, views: Sequence[ExecutionView]) -> bool:
        """Take the next step of what is wished; say whether anything was done."""
        if submission.state.finished or run is None or run.state in ENDED:
            return False
        if submission.cancelling_for is not None:
            over = submission.cancelling_for > self._cancel_grace
            if over or not self._runs.stop(submission, _ending(views)):
                failpoint("before_run_ended")
                self._runs.end(submission)
            return True
        if submission.hold_asked != run.held:
            self._hold_as_wished(submission, views)
            return True
        return False

    def _hold_as_wished(self, submission: Submission, views: Sequence[ExecutionView]) -> None:
        """Hold the run or let it go, until the wish is the same after it: else a late look undoes a newer word."""
        while True:
            if submission.hold_asked:
                self._runs.hold(submission)
            else:
                self._runs.release(submission, [_place(view) for view in views if view.pause_reason == HELD])
            now = self._submissions.get(submission.submission_id)
            if now is None or now.state.finished or now.cancel_asked or now.hold_asked == submission.hold_asked:
                return
            submission = now

    def _end_late(self, submission: Submission) -> None:
        """End a run whose maker was killed between making it and seeing that it had been cancelled."""
        if submission.state is SubmissionState.CANCELLED and submission.cancel_asked and not submission.made:
            self._runs.end(submission)


def _checked(submission: Submission, wish: Wish) -> str:
    given = answer(submission, wish)
    if given == "refused":
        how = "is being cancelled" if submission.cancel_asked and not submission.state.finished else None
        how = how or f"{'has' if submission.state in _HAS else 'is'} {submission.state.value}"
        raise IllegalMoveError(f"it {how}: there is nothing to {wish}")
    return given


_HAS = (SubmissionState.SUCCEEDED, SubmissionState.FAILED)


def _place(view: ExecutionView) -> Instance:
    return view.execution.task_id, view.execution.map_index


#: Of an attempt that was parked, died, or ended with an error: Airflow may call the next one.
_COMES_AGAIN = (ExecutionState.PAUSED, ExecutionState.RUNNING, ExecutionState.FAILED)


def _ending(views: Sequence[ExecutionView]) -> list[Instance]:
    """
    List what ends by itself after a cancel: an attempt at work comes to the end of its step; one that is parked, or
    between two tries, comes back to take back what it did, where it did something.
    """
    return [_place(view) for view in views if view.live or (view.state in _COMES_AGAIN and _did_something(view))]


def _did_something(view: ExecutionView) -> bool:
    done = EffectState.SUCCEEDED.value
    return any(one.state == done and not one.name.endswith(UNDO) for one in view.effects)
