"""
Judge an effect that was done before against today's request: the same, kept, done once more, or a conflict.

A person who says "once more" is taken at that word by the attempt that asked: it releases the effect, by
compare-and-set on the very intent that the question was about, and only then writes a new intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.inbox import FAIL, KEEP, ONCE_MORE, QuestionWrite
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import EffectConflictError, EffectDeclinedError, EffectExpiredError
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.questions import binding, is_over, plain_form, put, wait_for
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Say what follows.

    :param note: a remark for the log; empty where nothing differs.
    :param released: whether the effect may be done once more, now.
    """

    note: str = ""
    released: bool = False


def judge(session: Session, found: EffectRecord, request: Request, options: EffectOptions) -> Verdict:
    """
    Compare a done effect with today's call.

    :param session: the attempt at work.
    :param found: the effect, succeeded.
    :param request: today's request.
    :param options: the effect's options; ``identity`` says what counts.
    :raises EffectConflictError: where it was done with another request; nothing was sent.
    :raises EffectExpiredError: where its ``dedup_ttl`` has passed and its own task was cleared; nothing was sent.
    :raises AttemptAsks: where a person is to say what follows.
    """
    if options.dedup_ttl is not None and _expired(session, found, options.dedup_ttl):
        session.recorder.release(found.intent_id, by="dedup_ttl", note=f"older than {options.dedup_ttl:g} s")
        return Verdict(released=True)
    if found.request_fp == request.fingerprint():
        return Verdict()
    recorded = RecordedRequest.read(session.payloads.raw(found.request, found.effect.name))
    if recorded.same(request, options.identity):
        return Verdict()
    difference = recorded.difference(request, session.services.host.redact)
    earlier = found.execution == session.attempt.execution and found.generation < session.taken.generation
    if options.on_conflict == "ask":
        return _ask(session, found, request, difference, options)
    if options.on_conflict == "keep" or (options.on_conflict == "auto" and earlier):
        return _kept(session, found, difference)
    raise EffectConflictError(_message(found, difference))


def _expired(session: Session, found: EffectRecord, ttl: float) -> bool:
    """
    Say whether an effect is so old that this call is a new one.

    Whether a run may still be cleared can't be seen from a task. But an execution that comes back shows that it was: a
    clear of the very task that had the effect is refused, for it would do again what the run has done. Its retries and
    resumes, and what our own recovery has cleared, replay, whatever their age. Another execution that uses the key
    after the time is the repeat that the author meant by ``dedup_ttl``.
    """
    if found.done_for is None or found.done_for <= ttl:
        return False
    if found.execution != session.attempt.execution:
        return True
    again = session.taken.requeued or session.taken.sign in (Sign.RETRY, Sign.AMBIGUOUS, Sign.SAME)
    if again and found.generation == session.taken.generation:
        return False
    raise EffectExpiredError(
        f"effect '{found.effect.name}' key {shown_key(found.effect)} was done {_when(found)} by this very task, which "
        f"is longer ago than its dedup_ttl of {ttl:g} s, and the task was cleared. Nothing was sent. (1) mark the task "
        f'as success  (2) aiflow effects release {found.number} --reason "...", then clear it: it is done once more'
    )


def _kept(session: Session, found: EffectRecord, difference: str) -> Verdict:
    data = {"name": found.effect.name, "key": found.effect.key, "number": found.number, "difference": difference}
    session.recorder.note("effect_kept", data)
    release = f'aiflow effects release {found.number} --reason "..."'
    return Verdict(f" (the request differs: {difference}; the recorded result is kept; to do it again: {release})")


def _ask(session: Session, found: EffectRecord, request: Request, difference: str, options: EffectOptions) -> Verdict:
    name, key = found.effect.name, shown_key(found.effect)
    redact = session.services.host.redact
    recorded: Any = RecordedRequest.read(request.encoded())
    question = put(
        session,
        QuestionWrite(
            kind="conflict",
            name=name,
            bound_to=binding(session, "conflict", found.intent_id.bytes, request.fingerprint()),
            subject=f'"{name}" was done with another request: once more?  {key}',
            body=f"#{found.number} was done {_when(found)} by {found.execution}.\nWhat differs: {difference}\n"
            f"Today's request: {recorded.readable(request, redact)}\nNothing is sent until you answer.",
            options=(KEEP, ONCE_MORE, FAIL),
            effect=found.effect,
            intent_id=found.intent_id,
            assigned_users=tuple(options.assigned_users),
            timeout=options.in_doubt_timeout,
        ),
    )
    if is_over(question):
        raise EffectConflictError(
            f"{_message(found, difference)}  Nobody answered question #{question.number} in "
            f"{options.in_doubt_timeout:g} s"
        )
    if question.answer is None:
        what = f"was done with another request: {difference}. Waiting for a person (#{question.number})"
        session.journal.effect(name, key, what, warning=True)
        why = f"effect '{name}' key {key} was done with another request: a person is asked (#{question.number})"
        wait_for(session, plain_form(question), why)
    if question.answer.option == KEEP:
        return _kept(session, found, difference)
    if question.answer.option == ONCE_MORE:
        note = f"question #{question.number}: {ONCE_MORE}"
        session.recorder.release(found.intent_id, by=question.answer.by, note=note)
        return Verdict(released=True)
    raise EffectDeclinedError(
        f"effect '{name}' key {key}: {question.answer.by} told the task to fail, for it was done {_when(found)} with "
        f"another request: {difference}. Nothing was sent"
    )


def _when(found: EffectRecord) -> str:
    return f"{found.settled_at or found.intended_at:%Y-%m-%d %H:%M}"


def _message(found: EffectRecord, difference: str) -> str:
    return (
        f"effect '{found.effect.name}' key {shown_key(found.effect)} was done {_when(found)} with another request: "
        f"{difference}. Nothing was sent. "
        f'(1) on_conflict="keep", or identity=(...) with the argument names that count  (2) another key  '
        f'(3) aiflow effects release {found.number} --reason "..."'
    )
