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
