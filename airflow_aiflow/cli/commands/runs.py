"""`aiflow runs ...`: what a run has recorded; clear it, knowing what will happen again; requeue what is stalled."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option
from airflow_aiflow.cli.output import json_option
from airflow_aiflow.cli.run_address import read_dag_or_run, read_run, read_task

#: Steps of one list, unless more are asked for.
LIMIT = 1000

#: Runs of one list, unless more are asked for.
RUNS = 20


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser("runs", help="what a run has recorded; clear it, knowing what happens again")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [dsn_option(), home_option(), json_option()]
    showing = verbs.add_parser("show", parents=parents, help="show the tasks of a run as the ledger knows them")
    _add_run(showing)
    showing.set_defaults(run=run_show)
    listing = verbs.add_parser("steps", parents=parents, help="list the recorded steps of a run")
    _add_run(listing)
    listing.add_argument("--task", type=read_task, metavar="TASK", help="only of this task: TASK_ID or TASK_ID[3]")
    listing.add_argument("--limit", type=int, default=LIMIT, help=f"at most so many (default: {LIMIT})")
    listing.set_defaults(run=run_steps)
    spending = verbs.add_parser(
        "spent", parents=parents, help="sum up what model calls cost: of a DAG by runs, of a run by steps"
    )
    spending.add_argument("OF", type=read_dag_or_run, help="DAG_ID, or DAG_ID/RUN_ID")
    spending.add_argument("--limit", type=int, default=RUNS, help=f"at most so many runs (default: {RUNS})")
    spending.set_defaults(run=run_spent)
    clearing = verbs.add_parser(
        "clear", parents=parents, help="clear tasks of a run in Airflow; with --preview only say what would happen"
    )
    _add_run(clearing)
    _add_selection(clearing)
    clearing.add_argument("--preview", action="store_true", help="change nothing: say what happens again and what not")
    wishes = clearing.add_mutually_exclusive_group()
    wishes.add_argument("--fresh", action="store_true", help="start anew: steps run again, effects are kept")
    wishes.add_argument("--resume", action="store_true", help="replay what is recorded, also of a success")
    clearing.add_argument("--force", action="store_true", help="also where a task waits for a person's answer")
    clearing.set_defaults(run=run_clear)
    requeuing = verbs.add_parser(
        "requeue", parents=parents, help="make stalled tasks of a run runnable again now (exit 1: none was)"
    )
    _add_run(requeuing)
    _add_tasks(requeuing)
    requeuing.add_argument(
        "--preview", action="store_true", help="change nothing: say what is stalled, and what is not"
    )
    requeuing.add_argument(
        "--force", action="store_true", help="also where recovery waits or gave up: back-off, quarantine, a paused DAG"
    )
    requeuing.set_defaults(run=run_requeue)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("RUN", type=read_run, help="DAG_ID/RUN_ID")


def _add_tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        type=read_task,
        action="append",
        metavar="TASK",
        help="TASK_ID or TASK_ID[3]; may be given several times (default: the whole run)",
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    _add_tasks(parser)
    parser.add_argument("--downstream", action="store_true", help="also what comes after these tasks")
    parser.add_argument("--upstream", action="store_true", help="also what comes before these tasks")
    parser.add_argument("--only-failed", action="store_true", help="leave alone what did not fail")


def run_show(options: argparse.Namespace) -> int:
    """Show a run."""
    from airflow_aiflow.cli import run_lists

    return run_lists.run_show(options)


def run_steps(options: argparse.Namespace) -> int:
    """List a run's steps."""
    from airflow_aiflow.cli import run_lists

    return run_lists.run_steps(options)


def run_spent(options: argparse.Namespace) -> int:
    """Sum up what model calls cost."""
    from airflow_aiflow.cli import run_spending

    return run_spending.run_spent(options)


def run_clear(options: argparse.Namespace) -> int:
    """Clear tasks of a run, or say what would happen."""
    from airflow_aiflow.cli import run_clear as clearing

    return clearing.run_clear(options)


def run_requeue(options: argparse.Namespace) -> int:
    """Requeue stalled tasks, or say why not."""
    from airflow_aiflow.cli import run_requeue as requeuing

    return requeuing.run_requeue(options)
