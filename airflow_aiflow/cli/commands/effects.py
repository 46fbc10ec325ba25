"""`aiflow effects ...`: what waits for a person, what was done, and a person's word on it."""

from __future__ import annotations

import argparse
import getpass
import json
from pathlib import Path
from typing import Any
from uuid import UUID

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option
from airflow_aiflow.cli.output import json_option

#: Effects of one list, unless more are asked for: a screen or two.
LIMIT = 200


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser(
        "effects", help="what was done to the outside world, what is in doubt, and a person's word on it"
    )
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [dsn_option(), home_option(), json_option()]
    _add_readers(verbs, parents)
    _add_words(verbs, [*parents, _person_option()])


def _add_readers(verbs: Any, parents: list[argparse.ArgumentParser]) -> None:
    listing = verbs.add_parser(
        "list", parents=parents, help="list effects; with --in-doubt what waits for a person (exit 1: something does)"
    )
    listing.add_argument("--in-doubt", action="store_true", help="what waits for a person: doubts and questions")
    for name, what in {"dag": "DAG", "run": "run", "name": "effect", "key": "business key"}.items():
        listing.add_argument(f"--{name}", dest=f"of_{name}", metavar=name.upper(), help=f"only of this {what}")
    listing.add_argument("--limit", type=_count, default=LIMIT, help=f"at most so many (default: {LIMIT})")
    listing.add_argument("--after", type=_count, default=0, metavar="ID", help="only numbers above this one")
    _target_option(listing)
    listing.set_defaults(run=_run("effect_lists", "run_list"), parser=listing)
    showing = verbs.add_parser("show", parents=parents, help="show an effect or a question: request, history, answer")
    showing.add_argument("number", type=_number, metavar="ID", help="the number in the log, the form or the list")
    showing.set_defaults(run=_run("effect_lists", "run_show"))


def _add_words(verbs: Any, parents: list[argparse.ArgumentParser]) -> None:
    resolving = verbs.add_parser("resolve", parents=parents, help="say what became of a call in doubt")
    resolving.add_argument("number", type=_number, metavar="ID")
    words = resolving.add_mutually_exclusive_group(required=True)
    words.add_argument("--happened", action="store_true", help="it was done: never send it again")
    words.add_argument("--did-not-happen", action="store_true", help="it was surely not done: the task calls it again")
    words.add_argument("--fail", action="store_true", help="let the waiting task fail; the doubt stays")
    resolving.add_argument(
        "--result", type=_json_result, metavar="JSON|@FILE", help="with --happened: what the effect gives from now on"
    )
    resolving.set_defaults(run=_run("effect_words", "run_resolve"), parser=resolving)
    releasing = verbs.add_parser(
        "release", parents=parents, help="allow that what was done is done once more, under a new idempotency key"
    )
    releasing.add_argument("number", type=_number_or_act, metavar="ID")
    _target_option(releasing)
    releasing.set_defaults(run=_run("effect_words", "run_release"), parser=releasing)
    undoing = verbs.add_parser(
        "compensate", parents=parents, help="take back what was done; the next call does it again"
    )
    undoing.add_argument("number", type=_number, metavar="ID")
    ways = undoing.add_mutually_exclusive_group(required=True)
    ways.add_argument(
        "--function", metavar="MODULE:NAME", help="called as NAME(intent, result), as compensate= is by a task"
    )
    ways.add_argument("--by-hand", action="store_true", help="you have taken it back: note that it is")
    undoing.set_defaults(run=_run("effect_undo", "run_compensate"), parser=undoing)
    answering = verbs.add_parser("answer", parents=parents, help="answer a question: an approval, a conflict, your own")
    answering.add_argument("number", type=_number, metavar="ID")
    answering.add_argument("option", metavar="OPTION", help="one of the question's options, as `show` lists them")
    answering.set_defaults(run=_run("effect_words", "run_answer"))


def _target_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--conn-id",
        metavar="CONN",
        help="transactional effects, in the database they changed: a connection id, whose AIRFLOW_CONN_... is set, "
        "or an address",
    )


def _person_option() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--by", type=_name, default=_user(), help="who says so (default: the user of this shell)")
    parent.add_argument("--reason", "--note", default="", metavar="TEXT", help="why, for those who read it later")
    return parent


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, in a container
        return "unknown"


def _run(module: str, function: str) -> Any:
    """Import what works when the command runs: the parser is built for every command line."""

    def run(options: argparse.Namespace) -> int:
        import importlib

        return int(getattr(importlib.import_module(f"airflow_aiflow.cli.{module}"), function)(options))

    return run


def _number(text: str) -> int:
    word = text.removeprefix("#")
    if not word.isdecimal() or not 0 < int(word) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of the inbox, such as 1842 or '#1842'")
    return int(word)


def _number_or_act(text: str) -> int | UUID:
    try:
        return _number(text)
    except argparse.ArgumentTypeError as error:
        try:
            return UUID(text)
        except ValueError:
            raise error from None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a word needs the name of who says it")
    return text.strip()


def _json_result(text: str) -> Any:
    """Read a result: JSON, as it stands or from a file."""
    where = "the result"
    if text.startswith("@"):
        where = text[1:]
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"{where} can't be read: {error}") from None
    try:
        # Boxed, for `null` is a result and no result is none.
        return (json.loads(text, parse_constant=_no_constant),)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{where} is not JSON: {error}; a text needs quotes: '\"sent\"'") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is none of JSON's values")
