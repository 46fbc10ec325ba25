"""`aiflow demo-batch`: embed every paragraph that is installed here, killed twice, and again after 3 % have changed."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.demo_stage import add_stage_options, count, play, screen_for
from airflow_aiflow.cli.output import json_option

#: Two kills, far enough apart for the second to meet an attempt that has gone on.
KILL_AT = "30,60"
#: What changes in a night of most catalogues.
CHANGED = 0.03
#: Small enough for a kill to cost little on a machine where a batch takes a quarter of a second.
BATCH_SIZE = 32
SEED = 7


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo-batch",
        parents=[json_option()],
        help="embed every paragraph installed here, killed twice; a second night pays for 3 %% alone "
        "(exit 1: a promise did not hold)",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="take at most N paragraphs")
    parser.add_argument(
        "--kill-at",
        default=KILL_AT,
        metavar="PERCENT",
        help=f"when to kill the first night, in percent of the paragraphs (default: {KILL_AT})",
    )
    parser.add_argument(
        "--changed",
        type=_share,
        default=CHANGED,
        metavar="SHARE",
        help=f"share of the paragraphs that change before the second night, 0 to 1 (default: {CHANGED})",
    )
    parser.add_argument("--batch-size", type=count, default=BATCH_SIZE, metavar="N", help="most paragraphs of a call")
    parser.add_argument("--seed", type=int, default=SEED, help="decides which paragraphs change")
    add_stage_options(parser, "demo-batch")
    parser.set_defaults(run=run)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1, such as 0.03")
    return share


def run(options: argparse.Namespace) -> int:
    """Run both nights."""
    from airflow_aiflow.demo.batch_run import BatchDemo, BatchOptions
    from airflow_aiflow.demo.batch_screen import show_outcome
    from airflow_aiflow.demo.kill import read_kill_points

    screen = screen_for(options)
    points = read_kill_points(options.kill_at)
    wanted = BatchOptions(options.home, options.limit, points, options.changed, options.batch_size, options.seed)
    demo = BatchDemo(wanted, screen)
    return play(options, demo, screen, lambda screen, outcome, kept: show_outcome(screen, outcome, kept=kept))
