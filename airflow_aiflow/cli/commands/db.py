"""
`aiflow db upgrade | check`: bring the ledger's schema to this release, or see whether it is; `aiflow db clean`: remove
what is left of runs that are over; `aiflow db install-dedup`: make the dedup table in a database that transactional
effects change.
"""

from __future__ import annotations

import argparse
from typing import Any

from airflow_aiflow.cli.home_option import home_option
from airflow_aiflow.cli.ledger_address import dsn_option, find_ledger, stack_in_mind
from airflow_aiflow.cli.output import OK, json_option, show


def add_parser(subparsers: Any) -> None:
    """Add the noun with its verbs."""
    parser = subparsers.add_parser("db", help="the ledger's schema: upgrade, check; old runs: clean; dedup tables")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    parents = [dsn_option(), home_option(), json_option()]
    upgrading = verbs.add_parser(
        "upgrade", parents=parents, help="create or upgrade the tables, with the database owner's connection"
    )
    upgrading.add_argument("--sql", action="store_true", help="print the SQL for an empty database, and run nothing")
    upgrading.set_defaults(run=run_upgrade)
    checking = verbs.add_parser("check", parents=parents, help="see whether tasks could work on it (exit 1: no)")
    checking.set_defaults(run=run_check)
    _add_clean(verbs, parents)
    installing = verbs.add_parser(
        "install-dedup", parents=[json_option()], help="make the dedup table of flow.transaction in a target database"
    )
    installing.add_argument(
        "conn",
        metavar="CONN",
        help="a connection id, whose AIRFLOW_CONN_... is set, or an address: a postgresql:// URI or key=value pairs",
    )
    installing.add_argument(
        "--grant", action="append", default=[], metavar="ROLE", help="let a role have effects there; may be repeated"
    )
    installing.add_argument("--sql", action="store_true", help="print the SQL, and run nothing")
    installing.set_defaults(run=run_install_dedup)


def _add_clean(verbs: Any, parents: list[argparse.ArgumentParser]) -> None:
    cleaning = verbs.add_parser(
        "clean", parents=parents, help="remove rows of runs that are over and that Airflow no longer has"
    )
    cleaning.add_argument(
        "--before",
        required=True,
        metavar="WHEN",
        help="of executions that ended before: a day (2026-08-01, UTC), a moment, or so long ago (90d, 12h, 30m)",
    )
    cleaning.add_argument(
        "--dag-id",
        action="append",
        metavar="DAG_ID",
        help="of this DAG alone, also where Airflow does not know it any more; may be repeated",
    )
    cleaning.add_argument(
        "--effects",
        action="store_true",
        help="settled effects as well: a later call with such a key will be made again",
    )
    cleaning.add_argument("--dry-run", action="store_true", help="count what would go, and change nothing")
    cleaning.add_argument("--yes", action="store_true", help="do not ask")
    cleaning.set_defaults(run=run_clean)


def run_clean(options: argparse.Namespace) -> int:
    """Remove what is left of runs that are over, or count it."""
    from airflow_aiflow.cli import ledger_clean

    return ledger_clean.run_clean(options)


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


def run_install_dedup(options: argparse.Namespace) -> int:
    """Make the dedup table in a target database, or print how."""
    import psycopg

    from airflow_aiflow.cli.target_address import find_target
    from airflow_aiflow.exceptions import DedupTableError
    from airflow_aiflow.storage.statements import statement
    from airflow_aiflow.storage.target import GRANTS, install, target_address

    granting = [right.format('"' + role.replace('"', '""') + '"') for role in options.grant for right in GRANTS]
    if options.sql:
        text = "\n".join(["BEGIN;", statement("dedup_install"), *(f"{right};" for right in granting), "COMMIT;"])
        show(options, {"sql": text}, text)
        return OK
    try:
        store = install(target_address(find_target(options.conn)), options.grant)
    except psycopg.Error as error:
        said = " ".join(str(error.diag.message_primary or error).split())
        raise DedupTableError(f"the dedup table could not be made ({said}); nothing was changed") from error
    hint = "" if granting else ". A role that is no owner of it needs --grant ROLE"
    show(options, {"store_id": store, "granted": options.grant}, f"the dedup table is there, store {store}{hint}")
    return OK
