"""`aiflow effects list | show`: the inbox and the effects, for people and as JSON."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.effect_view import (
    effect_text,
    effect_value,
    entry_row,
    entry_value,
    question_text,
    question_value,
    short_row,
)
from airflow_aiflow.cli.ledger_inbox import open_inbox
from airflow_aiflow.cli.output import FINDING, OK, show, table
from airflow_aiflow.durable.inbox import Inbox, InboxEntry
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.runtime.persons_word import find_entry


def run_list(options: argparse.Namespace) -> int:
    """List effects, or what waits."""
    if options.conn_id is not None:
        from airflow_aiflow.cli.target_effects import list_here

        return list_here(options)
    with open_inbox(options) as inbox:
        return _list_waiting(options, inbox) if options.in_doubt else _list_effects(options, inbox)


def _list_effects(options: argparse.Namespace, inbox: Inbox) -> int:
    found = inbox.effects(
        dag_id=options.of_dag,
        run_id=options.of_run,
        name=options.of_name,
        key=options.of_key,
        limit=options.limit,
        after=options.after,
    )
    more = _more(options, found[-1].number) if found and len(found) == options.limit else ""
    text = (table([short_row(each) for each in found]) or "no effects") + more
    show(options, {"effects": [effect_value(each) for each in found]}, text)
    return OK


def _list_waiting(options: argparse.Namespace, inbox: Inbox) -> int:
    """Read page by page, for the filters of the inbox are ours."""
    found: list[InboxEntry] = []
    after = options.after
    while len(found) < options.limit:
        page = inbox.waiting(limit=options.limit, after=after)
        found += [entry for entry in page if _wanted(options, entry)]
        if len(page) < options.limit:
            break
        after = page[-1].number
    found = found[: options.limit]
    lines = [line for entry in found for line in entry_row(entry)]
    more = _more(options, found[-1].number) if len(found) == options.limit and found else ""
    hint = "\n\naiflow effects show ID tells more; resolve ID or answer ID gives your word" if found else ""
    show(
        options,
        {"waiting": [entry_value(entry) for entry in found]},
        ("\n".join(lines) or "nothing waits for a person") + hint + more,
    )
    return FINDING if found else OK


def _wanted(options: argparse.Namespace, entry: InboxEntry) -> bool:
    effect, question = entry.effect, entry.question
    execution = effect.execution if effect is not None else question.execution if question is not None else None
    about = effect.effect if effect is not None else None if question is None else question.effect
    name = about.name if about is not None else None if question is None else question.name
    return all(
        wanted is None or wanted == found
        for wanted, found in (
            (options.of_dag, execution and execution.dag_id),
            (options.of_run, execution and execution.run_id),
            (options.of_name, name),
            (options.of_key, about and about.key),
        )
    )


def _more(options: argparse.Namespace, last: int) -> str:
    return f"\nthere may be more: --after {last}" if not options.json else ""


def run_show(options: argparse.Namespace) -> int:
    """Show what a number names."""
    with open_inbox(options) as inbox:
        effect, question = inbox.effect_numbered(options.number), inbox.question(options.number)
        if effect is None and question is None:
            raise AiflowConfigError(
                f"#{options.number} is nothing in this ledger: `aiflow effects list` shows what there is"
            )
        intents = inbox.intents(options.number) if effect is not None else []
        entry = find_entry(inbox, options.number)
    value: dict[str, Any] = {"number": options.number, "waits": entry is not None}
    texts = []
    if question is not None:
        value["question"] = question_value(question)
        texts.append(question_text(question))
    if effect is not None:
        value["effect"] = effect_value(effect, intents=intents, whole=True)
        texts.append(effect_text(effect, intents, entry))
    show(options, value, "\n\n".join(texts))
    return OK
