"""
`aiflow effects resolve | release | answer`: a person's word, and what comes of it.

The word is in the ledger before Airflow is told anything. A word that does not count changes nothing, says what stands
instead, and is a finding (exit code 1). A further verb that takes a person's word belongs here.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from airflow_aiflow.cli.api_address import VARIABLE, find_api
from airflow_aiflow.cli.effect_lists import find_entry
from airflow_aiflow.cli.effect_view import KEYS, payload_cipher
from airflow_aiflow.cli.ledger_inbox import open_inbox
from airflow_aiflow.cli.output import FINDING, OK, show
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import DID_NOT_HAPPEN, FAIL, HAPPENED, Inbox, Question, Word, give_word
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import AiflowConfigError, AiflowError

#: Most bytes of a result that a person gives: it lies in the ledger's row, and people type less.
LARGEST_RESULT = 1024**2

#: What the first two options of a doubt say about its call.
DECISIONS = {HAPPENED: "happened", DID_NOT_HAPPEN: "did_not_happen"}


def run_resolve(options: argparse.Namespace) -> int:
    """Say what became of a call in doubt."""
    if options.result is not None and not options.happened:
        options.parser.error("--result goes with --happened: what did not happen has no result")
    number, by, note = options.number, options.by, options.reason
    with open_inbox(options) as inbox:
        waits = _waiting_question(inbox, number)
        if (before := _said_before(inbox, number)) is not None:
            return _refused(options, before)
        if options.fail:
            said, word = FAIL, inbox.answer(number, FAIL, by=by, note=note)
        elif options.happened:
            result = None if options.result is None else _stored(inbox, number, options.result[0])
            said, word = "happened", inbox.resolve(number, "happened", by=by, note=note, result=result)
        else:
            said, word = "did_not_happen", inbox.resolve(number, "did_not_happen", by=by, note=note)
        return _report(options, inbox, word, said, waits, {"decision": said})


def run_release(options: argparse.Namespace) -> int:
    """Allow that what was done is done once more."""
    if not options.reason.strip():
        options.parser.error("--reason is needed: whoever finds the second one wants to know why")
    with open_inbox(options) as inbox:
        word = inbox.release(options.number, by=options.by, note=options.reason)
        if not word.counts:
            return _refused(options, word)
        effect = inbox.effect_numbered(options.number)
        task = "the task" if effect is None else f"the {effect.execution}"
        text = (
            f"#{options.number} may be done once more: clear {task}, or let the next run come to it. It is sent "
            f"under a new idempotency key"
        )
        show(options, {"number": options.number, "counts": True, "by": options.by, "next": text}, text)
        return OK


def run_answer(options: argparse.Namespace) -> int:
    """Answer a question."""
    with open_inbox(options) as inbox:
        question = inbox.question(options.number)
        if question is None:
            raise AiflowConfigError(
                f"#{options.number} is no question: `aiflow effects list --in-doubt` shows what waits; for a call in "
                f"doubt it is `aiflow effects resolve {options.number}`"
            )
        chosen = _option(question, options.option)
        said = DECISIONS.get(chosen, chosen) if question.kind == "doubt" else chosen
        word = give_word(inbox, options.number, said, by=options.by, note=options.reason)
        return _report(options, inbox, word, chosen, question, {"option": chosen})


def _option(question: Question, text: str) -> str:
    """Find the option that is meant: its text, or its beginning, where that is one option's alone."""
    if text in question.options:
        return text
    word = text.strip().casefold()
    fitting = [option for option in question.options if word and option.casefold().startswith(word)]
    if len(fitting) == 1:
        return fitting[0]
    shown = ", ".join(repr(option) for option in question.options)
    raise AiflowConfigError(f"#{question.number} takes one of {shown}; got {text!r}. Nothing was answered")


def _stored(inbox: Inbox, number: int, result: Any) -> Stored:
    """Store a result as a task would: encrypted where the ledger's payloads are."""
    from airflow_aiflow.storage.payload_cipher import MAGIC

    data, cipher = encode(result).data, payload_cipher()
    if len(data) > LARGEST_RESULT:
        raise AiflowConfigError(
            f"the result has {len(data):,} bytes, at most {LARGEST_RESULT:,} are taken here: give a reference to what "
            f"is large. Nothing was changed"
        )
    question = inbox.question(number)
    about = number if question is None or question.effect is None else _number_of(inbox, question)
    effect = inbox.effect_numbered(about)
    if not cipher.active and effect is not None and (effect.request.inline or b"").startswith(MAGIC):
        raise AiflowConfigError(
            f"the payloads of this ledger are encrypted: set {KEYS} to the deployment's keys, so that the result is as "
            f"well. Nothing was changed"
        )
    return Stored(inline=cipher.lock(data))


def _number_of(inbox: Inbox, question: Question) -> int:
    """Find the number of the call that a question is about."""
    assert question.effect is not None
    found = inbox.effects(name=question.effect.name, key=question.effect.key)
    return next((each.number for each in found if each.intent_id == question.intent_id), question.number)


def _waiting_question(inbox: Inbox, number: int) -> Question | None:
    """Find who waits for word on a doubt, by the number of its intent or of the question about it."""
    entry = find_entry(inbox, number)
    return inbox.question(number) if entry is None else entry.question


def _said_before(inbox: Inbox, number: int) -> Word | None:
    """Find the word on a call that stands already, whoever said it: the same one again is no new one."""
    found = next((intent for intent in inbox.intents(number) if intent.number == number), None)
    if found is None or found.decision is None or found.decided_at is None:
        return None
    decision, at = found.decision.replace("_", " "), f"{found.decided_at:%Y-%m-%d %H:%M:%S} UTC"
    return Word(False, f"it was answered by {found.decided_by} at {at}: {decision}")


def _report(
    options: argparse.Namespace,
    inbox: Inbox,
    word: Word,
    said: str,
    waits: Question | None,
    value: dict[str, Any],
) -> int:
    if not word.counts:
        return _refused(options, word)
    number = options.number
    if waits is not None:
        following = tell_task(options, inbox, waits.execution, waits.asked_at, said)
    else:
        following = _nobody_waits(inbox, number, said)
    text = f"#{number}: {said.replace('_', ' ')} (by {options.by}); {following}"
    show(options, {"number": number, "counts": True, "by": options.by, **value, "next": following}, text)
    return OK


def _refused(options: argparse.Namespace, word: Word) -> int:
    text = f"#{options.number}: your word does not count: {word.why}. Nothing was changed"
    show(options, {"number": options.number, "counts": False, "why": word.why}, text)
    return FINDING


def _nobody_waits(inbox: Inbox, number: int, said: str) -> str:
    effect = inbox.effect_numbered(number)
    task = "the task" if effect is None else f"the {effect.execution}"
    then = "it is called again" if said == "did_not_happen" else "it is not sent again"
    return f"no task waits for it: clear {task}, and {then}"


def tell_task(
    options: argparse.Namespace, inbox: Inbox, execution: ExecutionId, parked_at: datetime | None, said: str
) -> str:
    """
    Let the waiting task go on, or say when it does.

    :param options: of the command line.
    :param inbox: the ledger's.
    :param execution: whose answer has come.
    :param parked_at: when it asked.
    :param said: the word.
    :return: a sentence for people. Whatever fails here, the word stands.
    """
    from airflow_aiflow.hooks.waiting_task import let_go
    from airflow_aiflow.runtime.clock import SystemClock

    try:
        api = find_api(options)
        if api is None:
            return (
                f"the {execution} looks into the inbox by itself, within the hour; with {VARIABLE} set, it is told "
                f"at once"
            )
        try:
            return let_go(api, inbox, execution, parked_at=parked_at, option=said, clock=SystemClock()).sentence
        finally:
            api.close()
    except AiflowError as error:
        return f"Airflow can't be told ({error}): the {execution} looks into the inbox by itself, within the hour"
