"""`aiflow doctor`: look at everything that durable tasks and recovery rest on, and say how to mend what is wrong."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option
from airflow_aiflow.cli.output import FINDING, OK, json_option, show

#: The id that `recovery_dag()` gives unless it is told another.
RECOVERY_DAG = "aiflow_recovery"


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        parents=[dsn_option(), home_option(), json_option()],
        help="look at connections, rights, clocks, settings and recovery (exit 1: something is wrong)",
    )
    names = "a check such as ledger.rights, or a part such as ledger; may be given several times"
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help=f"only this: {names}")
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave this out, likewise")
    parser.add_argument("--strict", action="store_true", help="exit 1 for a warning too")
    parser.add_argument(
        "--recovery-dag",
        default=RECOVERY_DAG,
        metavar="DAG_ID",
        help=f"the DAG that recovers stalled runs (default: {RECOVERY_DAG})",
    )
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Carry the checks out."""
    from airflow_aiflow.cli.doctor.checks import CHECKS
    from airflow_aiflow.cli.doctor.finding import Level, carry_out, chosen
    from airflow_aiflow.cli.doctor.report import as_json, as_text, counted, masked
    from airflow_aiflow.cli.doctor.sources import Sources
    from airflow_aiflow.cli.surroundings import surroundings

    known = {name for one in CHECKS for name in (one.name, one.name.partition(".")[0])}
    for wrong in sorted({*options.only, *options.skip} - known):
        options.parser.error(f"there is no check {wrong!r}: {', '.join(one.name for one in CHECKS)}")
    with surroundings(options):
        sources = Sources(options)
        try:
            found = {one.name: carry_out(one, sources) for one in chosen(CHECKS, options.only, options.skip)}
            secrets = list(sources.secrets())
        finally:
            sources.close()
    clean = {name: masked(one, secrets) for name, one in found.items()}
    show(options, as_json(clean), as_text(clean))
    wrong_ones = counted(clean, Level.ERROR) + (counted(clean, Level.WARNING) if options.strict else 0)
    return FINDING if wrong_ones else OK
