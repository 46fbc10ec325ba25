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
from airflow_aiflow.cli.effect_view import KEYS, payload_cipher
from airflow_aiflow.cli.ledger_inbox import open_inbox
from airflow_aiflow.cli.output import FINDING, OK, show
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import Inbox, Question, Word
from airflow_aiflow.exceptions import AiflowConfigError, AiflowError
from airflow_aiflow.runtime.persons_word import DoubtDecision, Said, answer, resolve, stored_result


def run_resolve(options: argparse.Namespace) -> int:
    """Say what became of a call in doubt."""
    if options.result is not None and not options.happened:
        options.parser.error("--result goes with --happened: what did not happen has no result")
    number = options.number
    decision: DoubtDecision = "fail" if options.fail else "happened" if options.happened else "did_not_happen"
    with open_inbox(options) as inbox:
        result = None
        if options.result is not None:
            result = stored_result(inbox, number, options.result[0], payload_cipher(), keys=KEYS)
        said = resolve(inbox, number, decision, by=options.by, note=options.reason, result=result)
        return _report(options, inbox, said, {"decision": said.said})


def run_release(options: argparse.Namespace) -> int:
    """Allow that what was done is done once more."""
    if not options.reason.strip():
        options.parser.error("--reason is needed: whoever finds the second one wants to know why")
    if (options.conn_id is None) != isinstance(options.number, int):
        options.parser.error("ID is a number of the ledger, or with --conn-id what `list --conn-id` shows first")
    if options.conn_id is not None:
        from airflow_aiflow.cli.target_effects import release_one

        return release_one(options)
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
        said = answer(inbox, question, chosen, by=options.by, note=options.reason)
        return _report(options, inbox, said, {"option": chosen})


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


def _report(options: argparse.Namespace, inbox: Inbox, found: Said, value: dict[str, Any]) -> int:
    if not found.word.counts:
        return _refused(options, found.word)
    number, said, waits = options.number, found.said, found.waits
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
