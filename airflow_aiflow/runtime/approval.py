"""
Have a person agree to a request before it is first sent.

The approval is bound to the effect and to the request's fingerprint: a request that changed asks again, and so does one
that was released to be done once more.
"""

from __future__ import annotations

from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.inbox import APPROVE, REJECT, QuestionWrite
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.exceptions import ApprovalDeclinedError, QuestionTimeoutError
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.questions import binding, is_over, plain_form, put, wait_for
from airflow_aiflow.runtime.requests import RecordedRequest, Request
from airflow_aiflow.runtime.session import Session


def approve(session: Session, effect: EffectId, request: Request, repeat: int, options: EffectOptions) -> None:
    """
    Go on where a person has agreed; else ask.

    :param session: the attempt at work.
    :param effect: what is about to be done.
    :param request: what would be sent.
    :param repeat: how often it was released so far.
    :param options: of the effect.
    :raises AttemptAsks: while nobody has answered.
    :raises ApprovalDeclinedError: if a person said no; nothing was sent.
    :raises QuestionTimeoutError: if nobody answered in time; nothing was sent.
    """
    name, key = effect.name, shown_key(effect)
    call = RecordedRequest.read(request.encoded()).readable(request, session.services.host.redact)
    question = put(
        session,
        QuestionWrite(
            kind="approval",
            name=name,
            bound_to=binding(
                session, "approval", effect.namespace, effect.name, effect.key, repeat, request.fingerprint()
            ),
            subject=f'May "{name}" be sent?  {key}',
            body=f"{session.where}\n{call}\nNothing is sent until you answer.",
            options=(APPROVE, REJECT),
            effect=effect,
            assigned_users=tuple(options.assigned_users),
            timeout=options.in_doubt_timeout,
        ),
    )
    if is_over(question):
        raise QuestionTimeoutError(
            f"effect '{name}' key {key} needs approval, and nobody answered (#{question.number}) in "
            f"{options.in_doubt_timeout:g} s. Nothing was sent; clear the task to ask again"
        )
    if question.answer is None:
        session.journal.effect(name, key, f"needs approval. Waiting for a person (#{question.number})", warning=True)
        wait_for(session, plain_form(question), f"effect '{name}' key {key} needs approval (#{question.number})")
    if question.answer.option != APPROVE:
        note = f": {question.answer.note}" if question.answer.note else ""
        raise ApprovalDeclinedError(
            f"effect '{name}' key {key} was declined by {question.answer.by} (#{question.number}){note}. Nothing was "
            f"sent; clear the task to ask again",
            question.answer.note or "",
        )
    session.services.host.log(
        f"aiflow: effect '{name}' key {key} was approved by {question.answer.by} (#{question.number})"
    )
