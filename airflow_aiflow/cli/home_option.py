"""The option ``--home``: which stack a command is about."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_HOME = Path(".aiflow")


def home_option(*, below: bool = False) -> argparse.ArgumentParser:
    """
    Give a parent parser with ``--home``.

    :param below: for a command below one that has it: what was said there counts.
    """
    parent = argparse.ArgumentParser(add_help=False)
    default = argparse.SUPPRESS if below else DEFAULT_HOME
    text = "folder of the stack's state (default: .aiflow)"
    parent.add_argument("--home", type=Path, default=default, metavar="DIR", help=text)
    return parent


def command_line(command: str, home: Path) -> str:
    """
    Give a command about a stack as a person types it here.

    :param command: such as ``down``.
    :param home: folder of the stack's state.
    """
    return f"aiflow {command}" if home == DEFAULT_HOME else f"aiflow {command} --home {home}"
