"""`aiflow db upgrade | check`: bring the ledger's schema to this release, or see whether it is."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option, find_ledger, stack_in_mind
from airflow_aiflow.cli.output import OK, json_option, show


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser("db", help="the ledger's schema: upgrade, check")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [dsn_option(), home_option(), json_option()]
    upgrading = verbs.add_parser(
        "upgrade", parents=parents, help="create or upgrade the tables, with the database owner's connection"
    )
    upgrading.add_argument("--sql", action="store_true", help="print the SQL for an empty database, and run nothing")
    upgrading.set_defaults(run=run_upgrade)
    checking = verbs.add_parser("check", parents=parents, help="see whether tasks could work on it (exit 1: no)")
    checking.set_defaults(run=run_check)


def run_upgrade(options: argparse.Namespace) -> int:
    """Upgrade the schema, or print how."""
    from airflow_aiflow.storage import migrate
    from airflow_aiflow.storage.schema import EXPECTED

    if options.sql:
        sql = migrate.script()
        show(options, {"revision": EXPECTED, "sql": sql}, sql)
        return OK
    dsn = find_ledger(options)
    with stack_in_mind(options):
        before = migrate.current(dsn)
        migrate.upgrade(dsn)
    if before == EXPECTED:
        text = f"the ledger's schema is at revision {EXPECTED} already"
    else:
        text = f"the ledger's schema went from {before or 'nothing'} to revision {EXPECTED}"
    show(options, {"before": before, "revision": EXPECTED}, text)
    return OK


def run_check(options: argparse.Namespace) -> int:
    """Check the schema's revision and the role's settings; what is wrong is an error with its way out."""
    from contextlib import closing

    from airflow_aiflow.storage.postgres import PostgresLedger
    from airflow_aiflow.storage.schema import EXPECTED

    with stack_in_mind(options), closing(PostgresLedger.connect(find_ledger(options))) as ledger:
        ledger.check()
    show(options, {"revision": EXPECTED, "ok": True}, f"ok: the ledger's schema is at revision {EXPECTED}")
    return OK
