"""`aiflow submit | watch | cancel | submissions`: hand work to a pipeline and follow it from the command line."""

from __future__ import annotations

import argparse
from typing import Any
from uuid import UUID

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.output import json_option

#: What can be done with a submission, and what it is for.
WORDS = {
    "show": "tell how a submission stands",
    "result": "print the result of one that has succeeded",
    "pause": "let nothing more of it start; what is at work parks at its next step",
    "resume": "let a paused one go on where it was",
    "cancel": "end it between two steps",
    "retry": "run a finished one again: what is recorded replays",
}


def add_parser(subparsers: Any) -> None:
    """Add the four commands."""
    parents = [home_option(), json_option()]
    submit = subparsers.add_parser("submit", parents=parents, help="hand a task to a pipeline")
    submit.add_argument("pipeline", metavar="PIPELINE", help="the DAG")
    submit.add_argument("--input", default="{}", help="its params as JSON, or @FILE, or @- for standard input")
    submit.add_argument("--key", help="idempotency key (default: from pipeline, input and day)")
    submit.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="to find it by")
    submit.add_argument("--priority", type=int, metavar="N", help="greater first, where runs wait to be made")
    submit.add_argument("--deadline", metavar="TIME", help="cancelled then; as 2026-12-01T18:00:00+01:00")
    submit.add_argument("--wait", action="store_true", help="follow it, and print its result")
    submit.set_defaults(run=_run("submit"))
    watch = subparsers.add_parser("watch", parents=parents, help="follow a submission to its end")
    watch.add_argument("id", metavar="ID", type=UUID)
    watch.set_defaults(run=_run("watch"))
    cancel = subparsers.add_parser("cancel", parents=parents, help="end a submission")
    cancel.add_argument("id", metavar="ID", type=UUID)
    cancel.set_defaults(run=_run("moved"), word="cancel")
    listing = subparsers.add_parser(
        "submissions", parents=parents, help="list submissions, the newest first, or do something with one"
    )
    listing.add_argument("--pipeline", help="only of this DAG")
    listing.add_argument("--state", help="only in this state")
    listing.add_argument("--label", metavar="NAME=VALUE", help="only with this label")
    listing.add_argument("--mine", action="store_true", help="only those of who asks")
    listing.add_argument("--limit", type=int, default=20, help="at most so many (default: 20)")
    listing.set_defaults(run=_run("listed"))
    words = listing.add_subparsers(title="with one submission", metavar="WORD", dest="word")
    for word, meaning in WORDS.items():
        one = words.add_parser(word, parents=[home_option(below=True), json_option(below=True)], help=meaning)
        one.add_argument("id", metavar="ID", type=UUID)
        one.set_defaults(run=_run({"show": "shown", "result": "printed"}.get(word, "moved")))


def _run(name: str) -> Any:
    def run(options: argparse.Namespace) -> int:
        from airflow_aiflow.cli import submit_commands

        return int(getattr(submit_commands, name)(options))

    return run
