"""
`aiflow demo`: kill a document review half way in a real Airflow, watch it resume, and count what it paid twice.

With `--kill worker` there is nobody left to tell Airflow, and no retry: the recovery DAG has to bring the run home.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_aiflow.cli.home_option import DEFAULT_HOME
from airflow_aiflow.cli.output import FINDING, OK, json_option

if TYPE_CHECKING:
    from airflow_aiflow.demo.outcome import Outcome
    from airflow_aiflow.demo.screen import Screen

#: After more than half, a task that begins anew has lost more than it still had to do.
KILL_AT = "60"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo",
        parents=[json_option()],
        help="kill a run half way and watch it resume (exit 1: a promise did not hold)",
    )
    parser.add_argument(
        "--input",
        type=Path,
        metavar="DIR",
        help="folder of .txt, .md and .pdf documents (default: the licence texts of the installed distributions)",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="read at most N documents")
    parser.add_argument(
        "--kill-at", default=KILL_AT, metavar="PERCENT", help="when to kill, in percent of the pages: 60 or 5,30,60,90"
    )
    parser.add_argument(
        "--kill",
        choices=("task", "worker"),
        default="task",
        help="the task's process, and Airflow retries it; or its worker, and recovery finds a run without retries",
    )
    parser.add_argument(
        "--llm-conn-id", metavar="ID", help="ask a real model: its connection, as AIRFLOW_CONN_<ID> in the environment"
    )
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep the stack running afterwards, until Ctrl-C (default: only for a person at a terminal)",
    )
    parser.add_argument(
        "--home",
        type=Path,
        default=DEFAULT_HOME / "demo",
        metavar="DIR",
        help="folder of the demo's own stack, emptied at the start (default: .aiflow/demo)",
    )
    parser.set_defaults(run=run)


def count(text: str) -> int:
    """
    Read a number of a command line.

    :param text: as it was typed.
    :raises argparse.ArgumentTypeError: if it is none from 1.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


class Stopped(KeyboardInterrupt):
    """A signal asked the demo to end."""


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    began = time.monotonic()
    from airflow_aiflow.demo.kill import read_kill_points
    from airflow_aiflow.demo.run import Demo, DemoOptions
    from airflow_aiflow.demo.screen import Screen

    keep = _keeps(options)
    # With --json, standard output holds one line alone.
    screen = Screen(sys.stderr if options.json else sys.stdout)
    points = read_kill_points(options.kill_at, options.kill)
    wanted = DemoOptions(options.home, options.input, options.limit, points, options.llm_conn_id, began, options.kill)
    demo = Demo(wanted, screen)
    with stoppable(), demo:
        try:
            outcome = demo.run()
            _show(options, outcome, screen, keep=keep)
            if keep:
                passwords = demo.stack.airflow.folder / "passwords.json"
                screen.say(f"The stack keeps running: log in as admin, password in {passwords}. Ctrl-C ends it.")
                with contextlib.suppress(Stopped):
                    demo.stay()
        finally:
            ignore_signals()
            screen.say("stopping the stack")
    return FINDING if list(outcome.broken()) else OK


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let the first signal raise, and none break into the stack's own end."""

    def stop(number: int, frame: object) -> None:
        ignore_signals()
        raise Stopped

    before = {number: signal.getsignal(number) for number in ENDS}
    for number, handler in before.items():
        # Under nohup a hang-up is ignored, and stays so.
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signals() -> None:
    """Let no further signal break into the stack's end."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


def _keeps(options: argparse.Namespace) -> bool:
    """Say whether the stack stays: a person wants to look at the timeline, a program does not."""
    if options.keep is not None:
        return bool(options.keep)
    return not options.json and sys.stdin.isatty() and sys.stdout.isatty() and "CI" not in os.environ


def _show(options: argparse.Namespace, outcome: Outcome, screen: Screen, *, keep: bool) -> None:
    screen.result(outcome, kept=keep)
    if options.json:
        print(json.dumps(outcome.as_json()), flush=True)
