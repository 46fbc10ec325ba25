"""`aiflow batch failed | retry-failed`: the items of a run's maps that have no result."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option
from airflow_aiflow.cli.output import json_option
from airflow_aiflow.cli.run_address import read_run, read_task


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser("batch", help="items of a run's maps that failed: list them, run them again")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [dsn_option(), home_option(), json_option()]
    listing = verbs.add_parser("failed", parents=parents, help="list the items that have no result (exit 1: there are)")
    _add_run(listing)
    listing.set_defaults(run=run_failed)
    retrying = verbs.add_parser(
        "retry-failed", parents=parents, help="clear the tasks that failed items, and run those items alone"
    )
    _add_run(retrying)
    retrying.add_argument("--downstream", action="store_true", help="also what comes after these tasks")
    retrying.set_defaults(run=run_retry_failed)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("RUN", type=read_run, help="DAG_ID/RUN_ID")
    parser.add_argument(
        "--task",
        type=read_task,
        action="append",
        metavar="TASK",
        help="TASK_ID or TASK_ID[3]; may be given several times (default: the whole run)",
    )


def run_failed(options: argparse.Namespace) -> int:
    """List a run's failed items."""
    from airflow_aiflow.cli import failed_items

    return failed_items.run_failed(options)


def run_retry_failed(options: argparse.Namespace) -> int:
    """Run a run's failed items again."""
    from airflow_aiflow.cli import failed_items

    return failed_items.run_retry_failed(options)
