"""Open the inbox of the ledger that a command is about."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from airflow_aiflow.cli.ledger_address import find_ledger, stack_in_mind
from airflow_aiflow.storage.postgres_inbox import PostgresInbox


@contextlib.contextmanager
def open_inbox(options: argparse.Namespace) -> Iterator[PostgresInbox]:
    """
    Open the inbox, and give its connections back.

    :param options: with ``dsn`` and ``home``.
    :raises AiflowConfigError: if nothing says where the ledger is.
    :raises LedgerUnavailableError: if it does not answer.
    :raises LedgerSchemaError: if its tables are not the ones that this release knows.
    """
    with stack_in_mind(options), contextlib.closing(PostgresInbox.connect(find_ledger(options))) as inbox:
        yield inbox
