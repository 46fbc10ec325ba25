"""The option ``--home``: which stack a command is about."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_HOME = Path(".aiflow")


def home_option() -> argparse.ArgumentParser:
    """Give a parent parser with ``--home``."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--home", type=Path, default=DEFAULT_HOME, metavar="DIR", help="folder of the stack's state (default: .aiflow)"
    )
    return parent


def command_line(command: str, home: Path) -> str:
    """
    Give a command about a stack as a person types it here.

    :param command: such as ``down``.
    :param home: folder of the stack's state.
    """
    return f"aiflow {command}" if home == DEFAULT_HOME else f"aiflow {command} --home {home}"
