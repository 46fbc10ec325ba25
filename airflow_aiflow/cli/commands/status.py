"""`aiflow status`: say what of the embedded stack is running."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.output import FINDING, OK, json_option, show, table


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "status", parents=[home_option(), json_option()], help="say what is running (exit 1: not all of it)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look at the stack."""
    from airflow_aiflow.local.stack_status import look

    status = look(options.home)
    rows = [(part.name, "ok" if part.healthy else part.detail, str(part.pid), part.address) for part in status.parts]
    text = f"{status.state} ({status.home})" + (f"\n{table(rows)}" if rows else "")
    show(options, status.as_json(), text)
    return OK if status.state == "running" else FINDING
