"""From the ledger's values to the JSON of effects and of the inbox."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

from airflow_aiflow.api.execution_views import name_of, owner_of
from airflow_aiflow.api.inbox_models import (
    AnswerLine,
    CallModel,
    EffectLine,
    EffectModel,
    EffectName,
    InboxEntryModel,
    QuestionModel,
)
from airflow_aiflow.api.plain_value import shortened
from airflow_aiflow.api.rights import Sight
from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import OWN_KEY, EffectId, ExecutionId, idempotency_key
from airflow_aiflow.durable.inbox import InboxEntry, IntentRecord, Question
from airflow_aiflow.durable.overview import SaidView
from airflow_aiflow.runtime.readable import readable, readable_request, unsettled
from airflow_aiflow.storage.payload_cipher import PayloadCipher

#: Longest address of a target's own page that is shown.
LONGEST_LINK = 2_000


def scope_of(namespace: str) -> str:
    """
    Say in what an effect's key is unique.

    :param namespace: of the effect.
    """
    return namespace.partition(":")[0]


def effect_name(effect: EffectRecord) -> EffectName:
    """
    Name an effect.

    :param effect: as read.
    """
    return EffectName(
        name=effect.effect.name,
        key=_key(effect.effect),
        state=effect.state,
        scope=scope_of(effect.effect.namespace),
    )


def _key(effect: EffectId) -> str | None:
    return None if effect.key == OWN_KEY else effect.key


def where(entry: InboxEntry) -> ExecutionId:
    """
    Say whose word is waited for.

    :param entry: what waits.
    """
    if entry.question is not None:
        return entry.question.execution
    assert entry.effect is not None
    return entry.effect.execution


def concerned(entry: InboxEntry) -> tuple[ExecutionId, ...]:
    """
    Say for whom a word may be given: the task that waits, and the one whose call it is; a key may be shared by DAGs.

    :param entry: what waits.
    """
    waits = where(entry)
    if entry.effect is None or entry.effect.execution == waits:
        return (waits,)
    return waits, entry.effect.execution


def may_answer(sight: Sight, user: BaseUser, entry: InboxEntry) -> bool:
    """
    Say whether a user's word counts.

    :param sight: what the user may do: change one of the DAGs that are concerned.
    :param user: who.
    :param entry: what waits; where it assigns users, these alone are asked.
    """
    return any(sight.changes(each.dag_id) for each in concerned(entry)) and is_assigned(user, entry.question)


def is_assigned(user: BaseUser, question: Question | None) -> bool:
    """
    Say whether a user is among those who are asked.

    :param user: who.
    :param question: ``None``: everybody is.
    """
    if question is None or not question.assigned_users:
        return True
    return user_id(user) in question.assigned_users


def user_id(user: BaseUser) -> str:
    """
    Give what ``assigned_users`` hold: the id alone, for a name may be another one's id, and a user's own choice.

    :param user: who.
    """
    return str(user.get_id())


def entry_model(entry: InboxEntry, sight: Sight, user: BaseUser, cipher: PayloadCipher) -> InboxEntryModel:
    """
    Show what waits.

    :param entry: as read.
    :param sight: what the user may do.
    :param user: who looks.
    :param cipher: opens what is encrypted.
    """
    effect, question = entry.effect, entry.question
    request, _ = (None, False) if effect is None else shortened(readable_request(effect.request, cipher))
    what = "doubt" if question is None else question.kind
    named = None if effect is None else effect_name(effect)
    if named is None and question is not None and question.effect is not None:
        about = question.effect
        named = EffectName(name=about.name, key=_key(about), state=None, scope=scope_of(about.namespace))
    return InboxEntryModel(
        number=entry.number,
        what=what,
        effect=named,
        execution=name_of(where(entry)),
        request=request,
        idempotency_key=None if effect is None else idempotency_key(effect.effect, effect.repeat),
        since=entry.since,
        attempt=None if effect is None else effect.attempt_number,
        owner=None if effect is None else owner_of(effect),
        host=None if effect is None else effect.owner.hostname,
        link=_link(request),
        question=None if question is None else question_model(question),
        may_answer=may_answer(sight, user, entry),
    )


def _link(request: Any) -> str | None:
    """Find the target's address in a request: its site, for the path may be a deed."""
    if isinstance(request, str):
        if not request.startswith("https://") or len(request) > LONGEST_LINK:
            return None
        try:
            host = urlsplit(request).hostname
        except ValueError:
            return None
        return f"https://{host}/" if host and host.replace("-", "").replace(".", "").isalnum() else None
    parts = request.values() if isinstance(request, dict) else request if isinstance(request, list) else ()
    return next((found for part in parts if (found := _link(part)) is not None), None)


def question_model(question: Question) -> QuestionModel:
    """
    Show a question.

    :param question: as read.
    """
    return QuestionModel(
        number=question.number,
        kind=question.kind,
        subject=question.subject,
        body=question.body,
        options=list(question.options),
        assigned_users=list(question.assigned_users),
        time_left=question.time_left,
    )


def effect_line(effect: EffectRecord) -> EffectLine:
    """
    Show an effect of a list.

    :param effect: as read.
    """
    return EffectLine(**_line(effect))


def _line(effect: EffectRecord) -> dict[str, Any]:
    return {
        "number": effect.number,
        "name": effect.effect.name,
        "key": _key(effect.effect),
        "scope": scope_of(effect.effect.namespace),
        "state": effect.state,
        "execution": name_of(effect.execution),
        "begun_at": effect.intended_at,
        "settled_at": effect.settled_at,
        "attempt": effect.attempt_number,
        "host": effect.owner.hostname,
        "owner": owner_of(effect) if unsettled(effect) else None,
        "may_have_happened_twice": effect.duplicate_suspected,
    }


def effect_model(
    effect: EffectRecord,
    calls: list[IntentRecord],
    entry: InboxEntry | None,
    *,
    cipher: PayloadCipher,
    results: bool,
    answerable: bool,
) -> EffectModel:
    """
    Show an effect, whole.

    :param effect: as read.
    :param calls: the first one first.
    :param entry: what waits under its number.
    :param cipher: opens what is encrypted.
    :param results: whether the user may see what tasks gave.
    :param answerable: whether the user's word counts.
    """
    result = None
    if effect.result is not None and results:
        result, _ = shortened(readable(effect.result, cipher))
    question = None if entry is None else entry.question
    return EffectModel(
        **_line(effect),
        idempotency_key=idempotency_key(effect.effect, effect.repeat),
        request=shortened(readable_request(effect.request, cipher))[0],
        result=result,
        calls=[_call(each) for each in calls],
        waits=entry is not None,
        question=None if question is None else question_model(question),
        may_answer=answerable,
    )


def _call(intent: IntentRecord) -> CallModel:
    return CallModel(
        number=intent.number,
        begun_at=intent.begun_at,
        settled_at=intent.settled_at,
        outcome=intent.outcome,
        decision=intent.decision,
        decided_by=intent.decided_by,
        decided_at=intent.decided_at,
        note=intent.note,
        released_by=intent.released_by,
        released_at=intent.released_at,
        release_note=intent.release_note,
        execution=name_of(intent.execution),
        attempt=intent.attempt_number,
    )


def answer_line(said: SaidView) -> AnswerLine:
    """
    Show what a person said.

    :param said: as read.
    """
    effect = None
    if said.name is not None and said.key is not None and said.namespace is not None:
        effect = EffectName(
            name=said.name,
            key=None if said.key == OWN_KEY else said.key,
            state=said.state,
            scope=scope_of(said.namespace),
        )
    return AnswerLine(
        number=said.number,
        at=said.at,
        by=said.by,
        said=said.said,
        what=said.what,
        effect=effect,
        subject=said.subject,
        execution=name_of(said.execution),
        reason=said.note,
    )
