"""The settings of the embedded stack, for commands that read configuration."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_aiflow.cli.ledger_address import ENV_FILE, VARIABLE


@contextmanager
def surroundings(options: argparse.Namespace) -> Iterator[None]:
    """
    Put what the embedded stack's file says into the environment, where the environment names no ledger.

    :param options: with ``dsn`` and ``home``.
    """
    from airflow_aiflow.local.env_file import read_env

    added: dict[str, str] = {}
    if not options.dsn and not os.environ.get(VARIABLE):
        found = read_env(options.home / ENV_FILE)
        added = {name: value for name, value in found.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
