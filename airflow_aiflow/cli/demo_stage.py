"""What the commands that play a demo share: its options, its run from start to end, and the signals that end it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_aiflow.cli.home_option import DEFAULT_HOME
from airflow_aiflow.cli.output import FINDING, OK

if TYPE_CHECKING:
    from airflow_aiflow.demo.own_stack import OwnStack
    from airflow_aiflow.demo.screen import Screen

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Counted(Protocol):
    """Be what a demo counted."""

    def broken(self) -> Iterator[str]:
        """Yield, in words, each promise that did not hold."""

    def as_json(self) -> dict[str, Any]:
        """Give it as one flat JSON object."""


C = TypeVar("C", bound=Counted)


class Stopped(KeyboardInterrupt):
    """A signal asked the demo to end."""


def add_stage_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """
    Add the options of every demo.

    :param parser: of the command.
    :param folder: of its own stack, below the usual one.
    """
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep the stack running afterwards, until Ctrl-C (default: only for a person at a terminal)",
    )
    parser.add_argument(
        "--home",
        type=Path,
        default=DEFAULT_HOME / folder,
        metavar="DIR",
        help=f"folder of the demo's own stack, emptied at the start (default: {DEFAULT_HOME / folder})",
    )


def count(text: str) -> int:
    """
    Read a number of a command line.

    :param text: as it was typed.
    :raises argparse.ArgumentTypeError: if it is none from 1.
    """
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def screen_for(options: argparse.Namespace) -> Screen:
    """
    Give where a person reads along: with ``--json``, standard output holds one line alone.

    :param options: of the command line.
    """
    from airflow_aiflow.demo.screen import Screen

    return Screen(sys.stderr if options.json else sys.stdout)


def keeps(options: argparse.Namespace) -> bool:
    """
    Say whether the stack stays: a person wants to look at what ran in it, a program does not.

    :param options: of the command line.
    """
    if options.keep is not None:
        return bool(options.keep)
    return not options.json and sys.stdin.isatty() and sys.stdout.isatty() and "CI" not in os.environ


def play(
    options: argparse.Namespace, demo: OwnStack[C], screen: Screen, show: Callable[[Screen, C, bool], None]
) -> int:
    """
    Play a demo from the start of its stack to its end.

    :param options: of the command line.
    :param demo: which one.
    :param screen: where a person reads along.
    :param show: shows there what was counted; given whether the stack stays.
    :return: the exit code.
    """
    keep = keeps(options)
    with stoppable(), demo:
        try:
            outcome = demo.run()
            show(screen, outcome, keep)
            if options.json:
                print(json.dumps(outcome.as_json()), flush=True)
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
