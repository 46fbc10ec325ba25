"""
Effects, doubts and questions in text and JSON.

Secrets in a request are masked as Airflow masks them; an encrypted request is shown only where the keys are.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import OWN_KEY, UNMAPPED, ExecutionId, idempotency_key
from airflow_aiflow.durable.inbox import InboxEntry, IntentRecord, Question
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.runtime.readable import certainty, readable, readable_request, task_waits, unsettled

if TYPE_CHECKING:
    from airflow_aiflow.storage.payload_cipher import PayloadCipher

#: Where Airflow reads the keys from the environment; a command has no other way to them.
KEYS = "AIRFLOW__AIFLOW__PAYLOAD_KEYS"

#: Characters of one argument or result: a document that was sent does not bury the rest.
MOST = 2000


def execution_value(execution: ExecutionId) -> dict[str, Any]:
    """
    Give an execution for ``--json``.

    :param execution: which one.
    """
    return {
        "dag_id": execution.dag_id,
        "run_id": execution.run_id,
        "task_id": execution.task_id,
        "map_index": None if execution.map_index == UNMAPPED else execution.map_index,
    }


def effect_value(
    effect: EffectRecord, *, intents: list[IntentRecord] | None = None, whole: bool = False
) -> dict[str, Any]:
    """
    Give an effect for ``--json``.

    :param effect: as read.
    :param intents: its calls so far, the first one first.
    :param whole: with request and result.
    """
    value: dict[str, Any] = {
        "number": effect.number,
        "name": effect.effect.name,
        "key": None if effect.effect.key == OWN_KEY else effect.effect.key,
        "namespace": effect.effect.namespace,
        "state": effect.state.value,
        "begun_at": _iso(effect.intended_at),
        "settled_at": _iso(effect.settled_at),
        "attempt": effect.attempt_number,
        "host": effect.owner.hostname,
        "owner": certainty(effect) if unsettled(effect) else None,
        "decision": effect.decision,
        "decided_by": effect.decided_by,
        "may_have_happened_twice": effect.duplicate_suspected,
        **execution_value(effect.execution),
    }
    if whole:
        value["idempotency_key"] = idempotency_key(effect.effect, effect.repeat)
        value["request"] = readable_request(effect.request, payload_cipher())
        value["result"] = None if effect.result is None else shown_payload(effect.result)
    if intents is not None:
        value["intents"] = [intent_value(each) for each in intents]
    return value


def intent_value(intent: IntentRecord) -> dict[str, Any]:
    """
    Give one call of an effect for ``--json``.

    :param intent: as read.
    """
    return {
        "number": intent.number,
        "begun_at": _iso(intent.begun_at),
        "settled_at": _iso(intent.settled_at),
        "outcome": intent.outcome,
        "decision": intent.decision,
        "decided_by": intent.decided_by,
        "decided_at": _iso(intent.decided_at),
        "note": intent.note,
        "released_by": intent.released_by,
        "released_at": _iso(intent.released_at),
        "release_note": intent.release_note,
        "attempt": intent.attempt_number,
        **execution_value(intent.execution),
    }


def question_value(question: Question) -> dict[str, Any]:
    """
    Give a question for ``--json``.

    :param question: as read.
    """
    answer = question.answer
    return {
        "number": question.number,
        "kind": question.kind,
        "name": question.name,
        "subject": question.subject,
        "body": question.body,
        "options": list(question.options),
        "assigned_users": list(question.assigned_users),
        "asked_at": _iso(question.asked_at),
        "seconds_left": question.time_left,
        "answer": None
        if answer is None
        else {"option": answer.option, "by": answer.by, "at": _iso(answer.at), "note": answer.note},
        **execution_value(question.execution),
    }


def entry_value(entry: InboxEntry) -> dict[str, Any]:
    """
    Give what waits for ``--json``.

    :param entry: as read.
    """
    return {
        "number": entry.number,
        "since": _iso(entry.since),
        "task_waits": task_waits(entry),
        "effect": None if entry.effect is None else effect_value(entry.effect),
        "question": None if entry.question is None else question_value(entry.question),
    }


def short_row(effect: EffectRecord) -> tuple[str, ...]:
    """
    Give an effect as a line of a list.

    :param effect: as read.
    """
    twice = "  MAY HAVE HAPPENED TWICE" if effect.duplicate_suspected else ""
    return (
        f"#{effect.number}",
        effect.state.value.replace("_", " "),
        effect.effect.name,
        _key(effect),
        f"{effect.intended_at:%Y-%m-%d %H:%M:%S}",
        f"{effect.execution}{twice}",
    )


def entry_row(entry: InboxEntry) -> list[str]:
    """
    Give what waits as the lines of a list.

    :param entry: as read.
    """
    since = f"since {entry.since:%Y-%m-%d %H:%M:%S} UTC"
    effect, question = entry.effect, entry.question
    if effect is not None:
        head = f"#{entry.number}  IN DOUBT  {effect.effect.name}  {_key(effect)}  {since}"
        lines = [f"begun by attempt {effect.attempt_number} of {effect.execution} on {effect.owner.hostname}; "]
        lines[0] += f"its process is {certainty(effect)}"
    elif question is not None:
        head = f"#{entry.number}  {question.kind.upper()}  {question.subject}  {since}"
        lines = [f"asked by {question.execution}; options: {', '.join(question.options)}"]
    else:
        return [f"#{entry.number}  {since}"]
    return [head, *(f"      {line}" for line in [*lines, _waits(entry)])]


def _waits(entry: InboxEntry) -> str:
    if not task_waits(entry):
        return "no task waits for it: after your word, clear the task"
    assert entry.question is not None
    left = entry.question.time_left
    until = (
        "" if left is None else f", for {left / 3600:.1f} h more" if left >= 3600 else f", for {left / 60:.0f} min more"
    )
    return f"a task waits for it{until}: {entry.question.execution}"


def effect_text(effect: EffectRecord, intents: list[IntentRecord], entry: InboxEntry | None) -> str:
    """
    Show an effect whole.

    :param effect: as read.
    :param intents: its calls so far.
    :param entry: what waits under its number; ``None``: nothing.
    """
    lines = [
        f"effect '{effect.effect.name}'  key {_key(effect)}  ({effect.effect.namespace})",
        f"state            {effect.state.value.replace('_', ' ')}",
        f"idempotency key  {idempotency_key(effect.effect, effect.repeat)}",
        f"request          {_request_text(effect.request)}",
    ]
    if effect.result is not None:
        lines.append(f"result           {_cut(repr(shown_payload(effect.result)))}")
    if unsettled(effect):
        lines.append(f"its process      {certainty(effect)} ({effect.owner.hostname}, pid {effect.owner.pid})")
    if effect.duplicate_suspected:
        lines.append("MAY HAVE HAPPENED TWICE: more than one call of it may have been applied; look at the target")
    if entry is not None:
        lines.append(f"inbox            {_waits(entry)}")
    lines += ["calls:", *(f"  {_intent_text(each)}" for each in intents)]
    return "\n".join(lines)


def _intent_text(intent: IntentRecord) -> str:
    begun = f"{intent.begun_at:%Y-%m-%d %H:%M:%S}"
    line = f"#{intent.number}  {begun}  attempt {intent.attempt_number} of {intent.execution}: "
    if intent.outcome is not None and intent.settled_at is not None:
        line += f"{intent.outcome.replace('_', ' ')} at {intent.settled_at:%H:%M:%S}"
    else:
        line += "no outcome"
    if intent.decision is not None:
        at = "" if intent.decided_at is None else f" at {intent.decided_at:%Y-%m-%d %H:%M:%S}"
        line += f"; {intent.decided_by}{at}: {intent.decision.replace('_', ' ')}{_noted(intent.note)}"
    if intent.released_at is not None:
        when = f"{intent.released_at:%Y-%m-%d %H:%M:%S}"
        line += f"; released by {intent.released_by} at {when}{_noted(intent.release_note)}"
    return line


def _noted(note: str) -> str:
    return f" ({note})" if note else ""


def question_text(question: Question) -> str:
    """
    Show a question whole.

    :param question: as read.
    """
    lines = [f"#{question.number} {question.kind}: {question.subject}", question.body, f"asked by {question.execution}"]
    lines += [f"  ( ) {option}" for option in question.options]
    if question.assigned_users:
        lines.append(f"may be answered by: {', '.join(question.assigned_users)}")
    if (answer := question.answer) is not None:
        note = f" ({answer.note})" if answer.note else ""
        lines.append(f"answered {answer.at:%Y-%m-%d %H:%M:%S} UTC by {answer.by}: {answer.option}{note}")
    return "\n".join(line for line in lines if line)


def shown_payload(stored: Stored) -> Any:
    """
    Read a payload for people, with the keys of the environment.

    :param stored: as the ledger keeps it.
    """
    return readable(stored, payload_cipher())


def payload_cipher() -> PayloadCipher:
    """Give what locks and opens payloads, with the keys of the environment."""
    from airflow_aiflow.storage.payload_cipher import PayloadCipher

    return PayloadCipher(payload_keys())


def payload_keys() -> tuple[bytes, ...]:
    """Give the keys of the environment."""
    return tuple(key.strip().encode() for key in os.environ.get(KEYS, "").split(",") if key.strip())


def _request_text(stored: Stored) -> str:
    found = readable_request(stored, payload_cipher())
    if not isinstance(found, dict):
        return str(found)
    lines = [f"{found['function']}("]
    lines += [f"                   {name}={_cut(repr(value))}" for name, value in found["arguments"].items()]
    return "\n".join([*lines, "                 )"])


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[:MOST]}... ({len(text):,} characters)"


def _key(effect: EffectRecord) -> str:
    return "(no key)" if effect.effect.key == OWN_KEY else effect.effect.key


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
