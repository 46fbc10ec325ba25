"""
`aiflow effects compensate`: take back what was done.

The function is named by the person, never by a row. The work is done by an attempt of its own: intent first, and what
is killed in the middle is in doubt.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_aiflow.cli.effect_view import payload_keys
from airflow_aiflow.cli.ledger_address import ENV_FILE, connection_fields, find_ledger, stack_in_mind
from airflow_aiflow.cli.output import FINDING, OK, show
from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.inbox import Word
from airflow_aiflow.exceptions import AiflowConfigError
from airflow_aiflow.runtime.bare_host import BareHost, taken_back

if TYPE_CHECKING:
    from airflow_aiflow.durable.ports import ArtifactStore, Ledger
    from airflow_aiflow.runtime.session import Services

#: Where Airflow reads these from the environment; a command has no other way to them.
ARTIFACTS = "AIRFLOW_CONN_AIFLOW_ARTIFACTS"
SEAL_KEY = "AIRFLOW__AIFLOW__SEAL_KEY"


def run_compensate(options: argparse.Namespace) -> int:
    """Take an effect back by a function, or note that it was taken back by hand."""
    if not options.reason.strip():
        options.parser.error("--reason is needed: whoever finds it taken back wants to know why")
    compensate = None if options.by_hand else load(options.function)
    from airflow_aiflow.storage.connections import Connections
    from airflow_aiflow.storage.postgres import PostgresLedger
    from airflow_aiflow.storage.postgres_inbox import PostgresInbox

    # The attempt's main thread, its heartbeat, and one to look beside them.
    connections = Connections(find_ledger(options), 3)
    with stack_in_mind(options), contextlib.closing(PostgresLedger(connections)) as ledger:
        found = PostgresInbox(connections).effect_numbered(options.number)
        word = _said(options, ledger, found, compensate)
    if not word.counts:
        text = f"#{options.number} was not taken back: {word.why}"
        show(options, {"number": options.number, "counts": False, "why": word.why}, text)
        return FINDING
    text = f"#{options.number} is taken back: the next call does it again, under a new idempotency key"
    show(options, {"number": options.number, "counts": True, "by": options.by}, text)
    return OK


def _said(
    options: argparse.Namespace, ledger: Ledger, found: EffectRecord | None, compensate: Callable[..., Any] | None
) -> Word:
    if found is None:
        return Word(False, f"there is no #{options.number} in this ledger")
    return taken_back(_services(options, ledger), found, options.number, compensate, options.by, options.reason)


def load(text: str) -> Callable[..., Any]:
    """
    Import the function that a person names.

    :param text: ``module:name``.
    :raises AiflowConfigError: if there is none.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise AiflowConfigError(f"--function takes module:name, such as jobs.billing:refund; got {text!r}")
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise AiflowConfigError(f"--function {text}: {error}. Nothing was taken back") from error
    finally:
        sys.path.remove(os.getcwd())
    if not callable(found):
        raise AiflowConfigError(f"--function {text} is no function. Nothing was taken back")
    function: Callable[..., Any] = found
    return function


class Shell(BareHost):
    """Be what runs the attempt: a person's shell. The log goes to standard error."""

    def log(self, line: str, *, warning: bool = False) -> None:
        """Write a line."""
        print(line, file=sys.stderr)

    def end_process(self, why: str, *, superseded: bool = True, back_in: float | None = None) -> NoReturn:
        """Go: another one is at work, or the call did not end in time."""
        print(f"aiflow: {why}", file=sys.stderr)
        os._exit(FINDING)


def _services(options: argparse.Namespace, ledger: Ledger) -> Services:
    from airflow_aiflow.durable.settings import FlowSettings
    from airflow_aiflow.runtime.clock import SystemClock
    from airflow_aiflow.runtime.session import Services

    seal_key = os.environ.get(SEAL_KEY, "").encode() or None
    return Services(
        ledger=ledger,
        store=lambda: _store(options),
        host=Shell(),
        settings=FlowSettings(seal_key=seal_key, payload_keys=payload_keys()),
        clock=SystemClock(),
    )


def _store(options: argparse.Namespace) -> ArtifactStore:
    from airflow_aiflow.local.env_file import read_env
    from airflow_aiflow.storage.artifacts_connection import PlainConnection, artifact_store

    value = os.environ.get(ARTIFACTS) or read_env(options.home / ENV_FILE).get(ARTIFACTS)
    if not value:
        raise AiflowConfigError(
            f"what was sent, or its result, is an artifact: set {ARTIFACTS}. Nothing was taken back"
        )
    fields = connection_fields(value, ARTIFACTS)
    extra = fields.pop("extra") or {}
    return artifact_store(PlainConnection("aiflow_artifacts", extra_dejson=extra, **fields))
