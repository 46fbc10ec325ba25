"""
`aiflow demo`: kill a document review half way in a real Airflow, watch it resume, and count what it paid twice.

With `--kill worker` there is nobody left to tell Airflow, and no retry: the recovery DAG has to bring the run home.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from airflow_aiflow.cli.demo_stage import add_stage_options, count, play, screen_for
from airflow_aiflow.cli.output import json_option

#: After more than half, a task that begins anew has lost more than it still had to do.
KILL_AT = "60"


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo",
        parents=[json_option()],
        help="kill a run half way and watch it resume (exit 1: a promise did not hold)",
    )
    parser.add_argument(
        "--input",
        type=Path,
        metavar="DIR",
        help="folder of .txt, .md and .pdf documents (default: the licence texts of the installed distributions)",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="read at most N documents")
    parser.add_argument(
        "--kill-at", default=KILL_AT, metavar="PERCENT", help="when to kill, in percent of the pages: 60 or 5,30,60,90"
    )
    parser.add_argument(
        "--kill",
        choices=("task", "worker"),
        default="task",
        help="the task's process, and Airflow retries it; or its worker, and recovery finds a run without retries",
    )
    parser.add_argument(
        "--llm-conn-id", metavar="ID", help="ask a real model: its connection, as AIRFLOW_CONN_<ID> in the environment"
    )
    add_stage_options(parser, "demo")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    began = time.monotonic()
    from airflow_aiflow.demo.kill import read_kill_points
    from airflow_aiflow.demo.run import Demo, DemoOptions

    screen = screen_for(options)
    points = read_kill_points(options.kill_at, options.kill)
    wanted = DemoOptions(options.home, options.input, options.limit, points, options.llm_conn_id, began, options.kill)
    return play(options, Demo(wanted, screen), screen, lambda screen, outcome, kept: screen.result(outcome, kept=kept))
