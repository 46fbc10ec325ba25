"""`aiflow down`: end the embedded stack."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.output import OK, json_option, show


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("down", parents=[home_option(), json_option()], help="end the embedded stack")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """End the stack; one that does not run is no error."""
    from airflow_aiflow.local.stack_status import end

    was_running = end(options.home)
    value = {"state": "stopped", "home": str(options.home), "was_running": was_running}
    show(options, value, "stopped" if was_running else f"no stack is running in {options.home}")
    return OK
