"""Judge an effect that was done before against today's request: the same, kept, or a conflict."""

from __future__ import annotations

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.exceptions import EffectConflictError
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session


def judge(session: Session, found: EffectRecord, request: Request, options: EffectOptions) -> str:
    """
    Compare a done effect's request with today's.

    :param session: the attempt at work.
    :param found: the effect, succeeded.
    :param request: today's request.
    :param options: the effect's options; ``identity`` says what counts.
    :return: a remark for the log; empty where nothing differs.
    :raises EffectConflictError: where it was done with another request; nothing was sent.
    """
    if found.request_fp == request.fingerprint():
        return ""
    recorded = RecordedRequest.read(session.payloads.raw(found.request, found.effect.name))
    if recorded.same(request, options.identity):
        return ""
    difference = session.services.host.redact(recorded.difference(request))
    earlier = found.execution == session.attempt.execution and found.generation < session.taken.generation
    if options.on_conflict == "keep" or (options.on_conflict == "auto" and earlier):
        data = {"name": found.effect.name, "key": found.effect.key, "difference": difference}
        session.recorder.note("effect_kept", data)
        return f" (the request differs: {difference}; the recorded result is kept)"
    when = found.settled_at or found.intended_at
    raise EffectConflictError(
        f"effect '{found.effect.name}' key {found.effect.key} was done {when:%Y-%m-%d %H:%M} with another request: "
        f"{difference}. Nothing was sent. "
        f'(1) on_conflict="keep", or identity=(...) with the argument names that count  (2) another key'
    )
