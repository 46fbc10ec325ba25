"""The entry point of `aiflow`: find the command, run it, turn errors into messages and exit codes.

Exit codes: 0 ok, 1 a finding or a failure, 2 a wrong command line, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Sequence

from airflow_aiflow.cli import commands
from airflow_aiflow.cli.output import FINDING, show_error
from airflow_aiflow.exceptions import AiflowError

INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """Collect the parsers of all commands."""
    parser = argparse.ArgumentParser(prog="aiflow", description="crash-safe AI pipelines in Apache Airflow")
    version = importlib.metadata.version("airflow-aiflow")
    parser.add_argument("--version", action="version", version=f"airflow-aiflow {version}")
    subparsers = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for module in sorted(pkgutil.iter_modules(commands.__path__), key=lambda each: each.name):
        importlib.import_module(f"{commands.__name__}.{module.name}").add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    :param arguments: the words after the program's name; None takes those of the process.
    :return: the exit code.
    """
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except AiflowError as error:
        show_error(options, error)
        return FINDING
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
