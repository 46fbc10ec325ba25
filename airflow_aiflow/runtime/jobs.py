"""
A long job somewhere else: submitted once, then looked at from time to time, and waited for without a worker slot.

The submission is an effect whose result is the job's id, so whoever comes later attaches to that job. A process that
died between the submission and its record leaves a doubt, which ``find`` settles by the idempotency key that the job
bears. Nothing that goes wrong in asking how a job stands says anything about the job: it is asked again, and never
submitted again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.identity import EffectId, idempotency_key, step_key
from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.durable.policy import EFFECT_OPTION_NAMES, Duration, EffectOptions, effect_options, seconds
from airflow_aiflow.durable.reconcile import DidNotHappen, Finding, Happened, Intent
from airflow_aiflow.exceptions import EffectOptionError, JobFailedError, StepTimeoutError
from airflow_aiflow.runtime.current import current_unit
from airflow_aiflow.runtime.effects import EffectCall
from airflow_aiflow.runtime.flow_outside import OutsideCalls
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.paid_jobs import PaidSubmission, Payment
from airflow_aiflow.runtime.payloads import masked, result_type
from airflow_aiflow.runtime.requests import takes_context
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, call_author, refuse_unfit, refuse_unrun, run_step
from airflow_aiflow.runtime.waits import after, rest

#: Looks in a row that may give no answer: with a look a minute, ten minutes of a provider's outage.
MOST_MISSES = 10

#: Seconds that one look, or a cancellation, may take: a status is one small request.
LOOK_SECONDS = 60.0

#: What an author's mistake raises; waiting cures none of it.
MISTAKES = (TypeError, AttributeError, NameError, ImportError, AssertionError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class JobCall:
    """Describe one call of ``flow.job``; see there."""

    name: str
    submit: Callable[..., str]
    args: tuple[Any, ...]
    poll: Callable[[str], JobStatus]
    result: Callable[[str], Any]
    find: Callable[[str], str | None] | None
    cancel: Callable[[str], None] | None
    key: str | None
    poll_interval: Duration
    timeout: Duration
    options: Mapping[str, Any]
    #: Gives the result with what it cost; ``None``: ``result`` gives it.
    ran: Callable[[str], Ran] | None = None
    #: Sets aside what the job may cost; ``None``: nothing is.
    payment: Payment | None = None


def run_job(session: Session, flow: OutsideCalls, call: JobCall) -> Any:
    """
    Submit a job, or attach to it, and wait for its result.

    :param session: the attempt at work.
    :param flow: gives the effect's defaults and its identity.
    :param call: the job.
    :return: the stored result.
    :raises JobFailedError: if the job ended without success, or not in its time.
    """
    interval, timeout = seconds(call.poll_interval, "poll_interval"), seconds(call.timeout, "timeout")
    options = _options(call, flow._effect_defaults)
    known: list[EffectId] = []

    def identify(name: str, chosen: EffectOptions) -> EffectId:
        known.append(flow._names.identify(name, chosen))
        return known[0]

    job_id = _submission(session, call, options, identify).run()
    if not isinstance(job_id, str) or not job_id:
        job_id = _id_of_submitted(session, call, known[0], job_id)
    watch = _Watch(session, call, job_id, known[0], interval, timeout)
    ended = StepCall(
        kind="job",
        name=call.name,
        fingerprint=_print_of(job_id),
        run=lambda: call_author(call.result, job_id) if call.ran is None else call.ran(job_id),
        as_type=result_type(call.result),
    )
    return after(session, ended, watch.until_done)


def _submission(
    session: Session, call: JobCall, options: EffectOptions, identify: Callable[[str, EffectOptions], EffectId]
) -> EffectCall:
    if call.payment is None:
        return EffectCall(session, call.name, call.submit, call.args, options, identify)
    paid = PaidSubmission(session, call.name, call.submit, call.args, options, identify)
    paid.payment = call.payment
    return paid


def result_key(name: str, job_id: str) -> bytes:
    """
    Say where a job's result is recorded.

    :param name: of the job.
    :param job_id: what its submission gave.
    """
    return step_key(current_unit().path, name, _print_of(job_id), 0)


def _print_of(job_id: str) -> bytes:
    return fingerprint("job", job_id)


def _id_of_submitted(session: Session, call: JobCall, effect: EffectId, given: Any) -> str:
    """
    Find the id of a job that a person, or ``reconcile=``, says was submitted: a form takes none.

    :param given: the submission's result, which is no id.
    :raises JobFailedError: if it is not known.
    """
    submission = session.recorder.effect(effect)
    if submission is None or submission.decision != "happened":
        raise JobFailedError(
            f"job '{call.name}': submit gave {given!r} where the job's id is expected, a text; what was submitted "
            f"can't be found again. Look at the provider"
        )
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)  # typed as JSON, without the quotes of a text
    if call.find is None:
        known = "find= finds it by the idempotency key that it bears, also where it is given to the job only now"
    else:
        find, key = call.find, idempotency_key(effect, submission.repeat)
        job_id = _outside(session, call.name, lambda: author(find, key))
        if isinstance(job_id, str) and job_id:
            return job_id
        known = "find= knows no job with its key. Look at the provider"
    without = "without the job's id" if given is None else f"with {given!r} as the job's id, which is no text"
    raise JobFailedError(
        f"job '{call.name}': {submission.decided_by} said that it was submitted (#{submission.number}), {without}. "
        f"{known}; {_way_out(submission)}"
    )


def _outside(session: Session, name: str, call: Callable[[], Any]) -> Any:
    """Ask the provider something that changes nothing, for so long as one small request may take."""
    if threading.current_thread() is not threading.main_thread():
        return refuse_unrun(call())  # can't be cut off here, and ends no process: it changes nothing
    return session.deadlines.run(
        lambda: refuse_unrun(call()),
        LOOK_SECONDS,
        lambda: StepTimeoutError(f"job '{name}': no answer within {LOOK_SECONDS:g} s"),
    )


def _options(call: JobCall, defaults: EffectOptions) -> EffectOptions:
    """Read what is wished of the submission; ``find`` is how it is reconciled."""
    given_too: list[Callable[..., Any]] = [fn for fn in (call.find, call.cancel) if fn is not None]
    functions: list[Callable[..., Any]] = [call.submit, call.poll, call.result, *given_too]
    for fn in functions:
        refuse_unfit("job", call.name, fn)
    for option in call.options:
        if option not in EFFECT_OPTION_NAMES:
            raise TypeError(
                f"job() got an unexpected keyword {option!r}. Keywords are options of the job and of the effect that "
                f"submits it; pass the function's own by position or by functools.partial"
            )
    given = {"key": call.key, **call.options}
    if call.find is not None:
        if given.get("reconcile") is not None:
            raise EffectOptionError(f"job '{call.name}': give find= or reconcile=, not both. Nothing was submitted")
        if not takes_context(_bare(call.submit)):
            raise EffectOptionError(
                f"job '{call.name}': find= looks for the idempotency key that the job bears, so make submit's first "
                f"parameter `ctx` and send ctx.idempotency_key. Nothing was submitted"
            )
        given["reconcile"] = _by_key(call.find)
    return effect_options(given, defaults)


def _bare(fn: Any) -> Callable[..., Any]:
    while hasattr(fn, "func"):  # a partial
        fn = fn.func
    bare: Callable[..., Any] = fn
    return bare


def _by_key(find: Callable[[str], str | None]) -> Callable[[Intent], Finding]:
    """
    Ask for the job that bears an intent's key.

    That there is none is a "no": whether it can be relied on is judged where it is heard. What ``find`` raises is
    "can't tell".
    """

    def reconcile(intent: Intent) -> Finding:
        found = refuse_unrun(find(intent.idempotency_key))
        return DidNotHappen() if found is None else Happened(found)

    return reconcile


class _Watch:
    """Look at a job until it has ended."""

    def __init__(
        self, session: Session, call: JobCall, job_id: str, effect: EffectId, interval: float, timeout: float
    ) -> None:
        self._session = session
        self._call = call
        self._id = job_id
        self._effect = effect
        self._interval = interval
        self._timeout = timeout
        self._misses = _Misses(session, call.name, job_id)
        self._said: tuple[Any, ...] | None = None

    def until_done(self) -> None:
        """
        Return once the job is done.

        :raises JobFailedError: if it has failed, or its time is over.
        :raises AttemptParked: if the slot goes back until the next look.
        """
        session, call = self._session, self._call
        submission, read_at = session.recorder.effect(self._effect), session.services.clock.monotonic()
        assert submission is not None
        while True:
            session.gate.check()
            status = self._look()
            if status is not None:
                self._tell(status)
                if status.verdict == "done":
                    return
                if status.verdict == "failed":
                    if call.payment is not None:
                        call.payment.failed(status)
                    raise JobFailedError(self._failed(status, submission))
            # The age is the database's, so that no two workers' clocks are compared.
            left = self._timeout - submission.age - (session.services.clock.monotonic() - read_at)
            if left <= 0:
                raise JobFailedError(self._given_up(submission))
            state = "can't be asked now" if status is None else f"is {status.state}"
            rest(session, min(self._interval, left), f"job '{call.name}' {self._id} {state}")

    def _look(self) -> JobStatus | None:
        """Ask how the job stands; ``None``: there was no answer this time."""
        try:
            status = self._outside(self._call.poll)
        except MISTAKES:
            raise
        except Exception as error:  # the provider's or the network's; it says nothing about the job
            if self._misses.add(error) > MOST_MISSES:
                error.add_note(
                    f"aiflow: job '{self._call.name}' {self._id} gave no answer {MOST_MISSES} times in a row; it was "
                    f"not submitted again, and the next attempt asks again"
                )
                raise
            return None
        if not isinstance(status, JobStatus):
            raise TypeError(f"job '{self._call.name}': poll gave {status!r}; return JobStatus(state)")
        self._misses.clear()
        return status

    def _outside(self, fn: Callable[[str], Any]) -> Any:
        return _outside(self._session, self._call.name, lambda: author(fn, self._id))

    def _tell(self, status: JobStatus) -> None:
        said = (status.state, status.progress, status.message)
        if said == self._said:
            return
        self._said = said
        data = {"name": self._call.name, "id": self._id, "state": status.state, "message": status.message}
        host, recorder = self._session.services.host, self._session.recorder
        try:
            recorder.note("job", masked({**data, "progress": status.progress}, host.redact))
        except Exception as error:  # the author's progress may be any object; a job is not lost for it
            host.log(f"aiflow: the progress of job '{self._call.name}' can't be stored: {error}", warning=True)
            recorder.note("job", masked(data, host.redact))

    def _failed(self, status: JobStatus, submission: EffectRecord) -> str:
        message = f": {status.message}" if status.message else ""
        return (
            f"job '{self._call.name}' {self._id} ended as {status.state!r}{message}. It is not submitted again by "
            f"itself; {_way_out(submission)}"
        )

    def _given_up(self, submission: EffectRecord) -> str:
        host, name = self._session.services.host, self._call.name
        became = "it may still run: there is no cancel="
        if self._call.cancel is not None:
            try:
                self._outside(self._call.cancel)
                became = "it was cancelled"
            except Exception as error:  # the provider's; the next attempt cancels again
                became = f"and could not be cancelled: {type(error).__name__}: {error}"
        host.log(f"aiflow: job '{name}' {self._id} did not end in its time; {became}", warning=True)
        self._session.recorder.note("job_given_up", masked({"name": name, "id": self._id}, host.redact))
        return (
            f"job '{name}' {self._id} did not end within {self._timeout:g} s of its submission; {became}. "
            f"{_way_out(submission)}"
        )


def _way_out(submission: EffectRecord) -> str:
    return f'to have it submitted once more: aiflow effects release {submission.number} --reason "...", then clear'


class _Misses:
    """Count the looks in a row that gave no answer, over all attempts: each leaves a record."""

    def __init__(self, session: Session, name: str, job_id: str) -> None:
        self._session = session
        self._name = name
        self._job_id = job_id
        #: How often an answer came again.
        self._streak = self._recorded("answered", 0)
        self._count = self._recorded("missed", self._streak)

    def add(self, error: Exception) -> int:
        """
        Count a look.

        :param error: what it raised.
        :return: how many there are in a row.
        """
        log = self._session.services.host.log
        log(f"aiflow: job '{self._name}' {self._job_id} can't be asked now: {type(error).__name__}", warning=True)
        self._record("missed", self._streak, self._count, type(error).__name__)
        self._count += 1
        return self._count

    def clear(self) -> None:
        """Begin anew: there was an answer."""
        if self._count:
            self._record("answered", 0, self._streak, None)
            self._streak, self._count = self._streak + 1, 0

    def _print(self, what: str, streak: int, number: int) -> bytes:
        return fingerprint("look", self._job_id, what, streak, number)

    def _record(self, what: str, streak: int, number: int, value: str | None) -> None:
        mark = self._print(what, streak, number)
        run_step(self._session, StepCall(kind="look", name=self._name, fingerprint=mark, run=lambda: Ran(value)))

    def _recorded(self, what: str, streak: int) -> int:
        find, unit, number = self._session.replay.find, current_unit().path, 0
        while find(step_key(unit, self._name, self._print(what, streak, number), 0)) is not None:
            number += 1
        return number
