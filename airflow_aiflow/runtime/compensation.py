"""
Take effects back: an undo is an effect of its own, with intent, act and outcome, and doubt like any other.

Its identity is the effect's with ``/undo`` behind the name; its request names the very call that it takes back, so that
an effect that was done again is taken back again. When the undo is done the effect becomes ``compensated``, and a later
call does it once more, under a new idempotency key. An undo in doubt is never made again without a person's word.

Not covered: the ledger holds no code, so that only effects which this attempt has called can be taken back by it; what
an earlier attempt did and this one did not come to is named in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.identity import OWN_KEY, UNDO, EffectId, idempotency_key
from airflow_aiflow.durable.policy import EffectOptions, OnInDoubt
from airflow_aiflow.durable.reconcile import Intent
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.effect_seal import check_effect
from airflow_aiflow.runtime.replay import OPEN_STATES
from airflow_aiflow.runtime.requests import RecordedRequest, Request, takes_context
from airflow_aiflow.runtime.session import Session


@dataclass(frozen=True, slots=True)
class Undoable:
    """
    Hold how an effect of this attempt is taken back.

    :param compensate: the author's: called as ``compensate(intent, result)``, behind a ``ctx`` where it takes one.
    :param options: the effect's.
    :param request: today's, which gives the classes of the arguments; ``None``: they are given as plain data.
    :param as_type: the class that rebuilds the result.
    :param by: whose word it is, for people.
    :param reason: why, for people.
    """

    effect: EffectId
    compensate: Callable[..., Any]
    options: EffectOptions
    request: Request | None = None
    as_type: Any = None
    by: str = "compensate_on_failure"
    reason: str = "the task failed for good"


def by_somebody(_intent: Intent, _result: Any) -> None:
    """Be what takes an effect back of which this code does not know how; it is never called."""


def undo_of(effect: EffectId) -> EffectId:
    """
    Name the effect that takes another one back.

    :param effect: its identity.
    """
    return EffectId(effect.namespace, effect.name + UNDO, effect.key)


def still_done(session: Session, done: Undoable, found: EffectRecord) -> EffectRecord | None:
    """
    Look whether an effect that is recorded as done was taken back meanwhile.

    :param session: the attempt at work.
    :param done: how it is taken back.
    :param found: the effect, succeeded.
    :return: the record; ``None``: it was taken back, and is to be done again.
    :raises EffectInDoubtError: if nobody knows whether it was, and the effect's policy is ``hold``.
    :raises AttemptParked: if a person is asked.
    """
    undo = _undo_of(session, found, look=done.compensate is not by_somebody)
    if undo is not None and undo.state in OPEN_STATES:
        undo = _settled(session, done, undo, found)
    if undo is None or undo.state is not EffectState.SUCCEEDED:
        return found
    _note_compensated(session, found)
    return None


def _settled(session: Session, done: Undoable, undo: EffectRecord, found: EffectRecord) -> EffectRecord | None:
    """Bring an undo out of doubt: an effect of which nobody knows whether it stands is neither replayed nor done."""
    from airflow_aiflow.runtime.doubt import Doubts

    policy: OnInDoubt = "hold" if done.options.on_in_doubt == "hold" else "ask"
    options = replace(_options_of_undo(done.options), on_in_doubt=policy)
    Doubts(session, undo.effect.name, options, None).settle(undo, undo_request(session, done, found))
    return session.recorder.effect(undo.effect)


def _options_of_undo(options: EffectOptions) -> EffectOptions:
    return replace(
        options,
        on_conflict="keep",
        identity=None,
        reconcile=None,
        compensate=None,
        require_approval=False,
        dedup_ttl=None,
    )


def undo_all(session: Session, *, cancelled: bool = False) -> None:
    """
    Take back, the last one first, what this execution did in this generation and this attempt has called.

    One that can't be taken back, or whose undo is in doubt, is told to people and the others go on.

    :param session: the attempt, about to fail for good.
    :param cancelled: whether it ends because a person cancelled its run.
    """
    ours = list(dict.fromkeys(each.effect for each in reversed(session.undoable)))
    how = {each.effect: each for each in session.undoable}
    if cancelled:
        how = {effect: replace(each, by="cancel", reason="the run was cancelled") for effect, each in how.items()}
    session.replay.reached.update(undo_of(effect) for effect in ours)
    for effect in ours:
        try:
            found = session.recorder.effect(effect)
            if found is not None and found.state is EffectState.SUCCEEDED and _is_ours(session, found):
                undo(session, how[effect], found)
        except Exception as trouble:  # the author's, the target's, the ledger's: each is told, none hides the failure
            _tell(session, effect, trouble)
    _tell_unreached(session)


def undo(session: Session, done: Undoable, found: EffectRecord) -> None:
    """
    Take one effect back.

    :param session: the attempt at work.
    :param done: how.
    :param found: the effect, succeeded.
    :raises EffectInDoubtError: if an earlier undo of it, or this one, has no known outcome.
    """
    from airflow_aiflow.runtime.effects import EffectCall

    settings = session.services.settings
    check_effect(settings.seal_key, found)
    target = undo_of(found.effect)
    before = session.recorder.effect(target)
    if before is not None and before.state is EffectState.SUCCEEDED:
        if not _takes_back(session, before, found):
            session.recorder.release(before.intent_id, by="compensation", note=f"#{found.number} was done since")
        session.replay.effects.pop(target, None)
    request = undo_request(session, done, found)
    # Nobody waits for a person here: the attempt has failed, and the doubt stands in the inbox.
    policy: OnInDoubt = "retry" if done.options.on_in_doubt == "retry" and request.takes_ctx else "hold"
    options = replace(_options_of_undo(done.options), on_in_doubt=policy)
    EffectCall(session, target.name, request.fn, (), options, lambda _name, _options: target, request=request).run()
    _note_compensated(session, found)


def undo_request(session: Session, done: Undoable, found: EffectRecord) -> Request:
    """
    Make the request of an undo: it names the call that it takes back, for people and for later undos.

    :param session: the attempt at work.
    :param done: how the effect is taken back.
    :param found: the effect.
    """
    name = found.effect.name
    recorded = RecordedRequest.read(session.payloads.raw(found.request, name))
    key = idempotency_key(found.effect, found.repeat)
    plain = recorded.named(None, tuple(recorded.args), recorded.kwargs)

    def take_back(*ctx: Any) -> None:
        intent = Intent(
            name=name,
            key="" if found.effect.key == OWN_KEY else found.effect.key,
            idempotency_key=key,
            request=plain if done.request is None else recorded.by_name(done.request),
            begun_at=found.intended_at,
            attempt=found.attempt_number,
        )
        result = None if found.result is None else session.payloads.load_done(found.result, name, done.as_type)
        given = done.compensate(*ctx, intent, result)
        if hasattr(given, "__await__"):
            raise TypeError(f"compensate= of effect '{name}' is a coroutine function, which is not called here")

    def without_ctx(undoes: int, idempotency_key: str, request: dict[str, Any], by: str, reason: str) -> None:
        take_back()

    def with_ctx(ctx: Any, undoes: int, idempotency_key: str, request: dict[str, Any], by: str, reason: str) -> None:
        take_back(ctx)

    takes_ctx = takes_context(done.compensate)
    fn = with_ctx if takes_ctx else without_ctx
    # What a person reads: the author's function, not ours around it.
    fn.__module__ = getattr(done.compensate, "__module__", None) or fn.__module__
    fn.__qualname__ = getattr(done.compensate, "__qualname__", None) or type(done.compensate).__qualname__
    arguments = (found.number, key, plain, done.by, done.reason)
    # Two undos of one call are one, whoever asks for them.
    prints = {"undoes": fingerprint(found.number), "idempotency_key": fingerprint(key), "request": found.request_fp}
    return Request(fn, takes_ctx, arguments, {}, prints)


def _undo_of(session: Session, found: EffectRecord, *, look: bool) -> EffectRecord | None:
    """Give the undo of this very call, if one was begun; ``look``: ask the ledger for that of another execution."""
    target, replay = undo_of(found.effect), session.replay
    undo = replay.effects.get(target) or replay.open.get(target)
    if undo is None and look and found.execution != session.attempt.execution:
        undo = session.recorder.effect(target)
    if undo is not None and target in replay.open:
        undo = session.recorder.effect(target)  # a person may have answered meanwhile
    return undo if undo is not None and _takes_back(session, undo, found) else None


def _takes_back(session: Session, undo: EffectRecord, found: EffectRecord) -> bool:
    recorded = RecordedRequest.read(session.payloads.raw(undo.request, undo.effect.name))
    return bool(recorded.args) and recorded.args[0] == found.number


def _is_ours(session: Session, found: EffectRecord) -> bool:
    return (found.execution, found.generation) == (session.attempt.execution, session.taken.generation)


def _note_compensated(session: Session, found: EffectRecord) -> None:
    session.recorder.compensated(found.intent_id)
    session.replay.effects.pop(found.effect, None)
    session.replay.effects.pop(undo_of(found.effect), None)
    session.recorder.note("effect_undone", {"name": found.effect.name, "key": found.effect.key})


def _tell(session: Session, effect: EffectId, trouble: Exception) -> None:
    session.services.host.log(
        f"aiflow: effect '{effect.name}' key {shown_key(effect)} was not taken back: "
        f"{session.services.host.redact(str(trouble))}",
        warning=True,
    )
    session.recorder.note("effect_not_undone", {"name": effect.name, "key": effect.key})


def _tell_unreached(session: Session) -> None:
    for effect, record in list(session.replay.effects.items()):
        if effect in session.replay.reached or effect.name.endswith(UNDO) or not _is_ours(session, record):
            continue
        session.services.host.log(
            f"aiflow: effect '{effect.name}' key {shown_key(effect)} (#{record.number}) was done by attempt "
            f"{record.attempt_number}, and this attempt ended before it came to it: it was not taken back. "
            f"By hand: aiflow effects compensate {record.number}",
            warning=True,
        )
