"""How commands speak: text for people, or with ``--json`` one JSON object on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

OK = 0
FINDING = 1


def json_option(*, below: bool = False) -> argparse.ArgumentParser:
    """
    Give a parent parser with ``--json``, for every command.

    :param below: for a command below one that has it: what was said there counts.
    """
    parent = argparse.ArgumentParser(add_help=False)
    default = argparse.SUPPRESS if below else False
    parent.add_argument("--json", action="store_true", default=default, help="print one JSON object instead of text")
    return parent


def show(options: argparse.Namespace, value: Any, text: str) -> None:
    """Print a result.

    :param options: of the command line.
    :param value: what ``--json`` prints, on one line.
    :param text: what people read.
    """
    print(json.dumps(value, default=str) if options.json else text, flush=True)


def show_error(options: argparse.Namespace, error: Exception) -> None:
    """Print an error: with ``--json`` an object on standard output too, so that a program need not read text."""
    if getattr(options, "json", False):
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
    else:
        print(f"aiflow: {error}", file=sys.stderr, flush=True)


def note(line: str) -> None:
    """Print a line about progress to standard error, where it disturbs no reader of the result."""
    print(line, file=sys.stderr, flush=True)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows in columns."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in padded)
