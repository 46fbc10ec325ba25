"""`aiflow limits set | list | remove`: named limits of model calls, over all workers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option, find_ledger, stack_in_mind
from airflow_aiflow.cli.output import FINDING, OK, json_option, show, table

if TYPE_CHECKING:
    from airflow_aiflow.durable.limit import Limit, LimitView
    from airflow_aiflow.storage.postgres_limits import PostgresLimits

#: What a limit may hold -> what it counts.
PARTS = {"rpm": "requests a minute", "tpm": "tokens a minute, of prompts and answers", "concurrency": "calls at once"}

#: The word that lifts a part of a limit.
NONE = "none"

#: Largest number that a limit may hold: more is no limit, and what the ledger adds up stays far below its columns' end.
LARGEST = 10**9


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser("limits", help="limits of model calls over all workers: set, list, remove")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [dsn_option(), home_option(), json_option()]
    setting = verbs.add_parser(
        "set", parents=parents, help="make a limit, or change it; what is not named stays as it is"
    )
    setting.add_argument("name", metavar="NAME", help="what rate_limit= says in a DAG")
    for part, what in PARTS.items():
        setting.add_argument(f"--{part}", type=_number, metavar="N", help=f"{what}; '{NONE}': any number")
    setting.set_defaults(run=run_set)
    listing = verbs.add_parser("list", parents=parents, help="list the limits, and what counts against them now")
    listing.set_defaults(run=run_list)
    removing = verbs.add_parser(
        "remove", parents=parents, help="remove a limit: calls that name it fail (exit 1: none)"
    )
    removing.add_argument("name", metavar="NAME")
    removing.set_defaults(run=run_remove)


def _number(text: str) -> int | str:
    if text.lower() == NONE:
        return NONE
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {LARGEST}, or '{NONE}', got {text!r}")
    return int(text)


@contextmanager
def _open(options: argparse.Namespace) -> Iterator[PostgresLimits]:
    from airflow_aiflow.storage.postgres_limits import PostgresLimits

    with stack_in_mind(options), closing(PostgresLimits.connect(find_ledger(options))) as limits:
        yield limits


def run_set(options: argparse.Namespace) -> int:
    """
    Make a limit, or change it.

    :raises FlowOptionError: if the name can't be one.
    :raises AiflowConfigError: if a new limit would limit nothing.
    """
    from airflow_aiflow.durable.limit import Limit, check_limit_name
    from airflow_aiflow.exceptions import AiflowConfigError

    name = check_limit_name(options.name)
    given = {part: getattr(options, part) for part in PARTS if getattr(options, part) is not None}
    if not given:
        raise AiflowConfigError(
            f"what is to be limited? Give one or more of {', '.join(f'--{part}' for part in PARTS)}"
        )
    with _open(options) as limits:
        before = next((view.limit for view in limits.limits() if view.limit.name == name), Limit(name))
        parts = {
            part: getattr(before, part) if part not in given else None if given[part] == NONE else given[part]
            for part in PARTS
        }
        limit = Limit(name, **parts)
        limits.set_limit(limit)
    show(options, _plain(limit), f"limit '{name}': {_shown(limit)}; workers follow within seconds")
    return OK


def run_list(options: argparse.Namespace) -> int:
    """List the limits."""
    with _open(options) as limits:
        views = limits.limits()
    head = ("NAME", "REQUESTS/MIN", "USED", "TOKENS/MIN", "USED", "AT ONCE", "AT WORK", "WORKERS", "WAITING")
    rows = [head, *map(_row, views)]
    empty = "no limit is set: `aiflow limits set NAME --rpm N` makes one"
    show(options, {"limits": [_view(view) for view in views]}, table(rows) if views else empty)
    return OK


def run_remove(options: argparse.Namespace) -> int:
    """Remove a limit."""
    with _open(options) as limits:
        removed = limits.remove_limit(options.name)
    text = f"limit '{options.name}' is removed" if removed else f"there is no limit '{options.name}'"
    show(options, {"name": options.name, "removed": removed}, text)
    return OK if removed else FINDING


def _shown(limit: Limit) -> str:
    parts = [f"{getattr(limit, part):,} {what}" for part, what in PARTS.items() if getattr(limit, part) is not None]
    return "; ".join(parts) or "nothing is limited"


def _plain(limit: Limit) -> dict[str, Any]:
    return {"name": limit.name} | {part: getattr(limit, part) for part in PARTS}


def _view(view: LimitView) -> dict[str, Any]:
    return _plain(view.limit) | {
        "used_requests": view.used_requests,
        "used_tokens": view.used_tokens,
        "slots": view.slots,
        "workers": view.workers,
        "waiting": view.waiting,
    }


def _row(view: LimitView) -> tuple[str, ...]:
    limit = view.limit

    def most(number: int | None) -> str:
        return "-" if number is None else f"{number:,}"

    return (
        limit.name,
        most(limit.rpm),
        f"{view.used_requests:,}",
        most(limit.tpm),
        f"{view.used_tokens:,}",
        most(limit.concurrency),
        str(view.slots),
        str(view.workers),
        str(view.waiting),
    )
