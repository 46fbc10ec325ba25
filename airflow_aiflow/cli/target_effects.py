"""`aiflow effects list | release --conn-id CONN`: transactional effects, known to the database they changed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_aiflow.cli.output import FINDING, OK, show, table
from airflow_aiflow.cli.target_address import find_target, target_name
from airflow_aiflow.durable.identity import OWN_KEY
from airflow_aiflow.exceptions import DedupTableError
from airflow_aiflow.storage.target import MISSING, target_address
from airflow_aiflow.storage.target_effects import DoneHere, done_here, release_here


def list_here(options: argparse.Namespace) -> int:
    """
    List what was done in a target.

    :param options: with ``conn_id`` and the filters of the list.
    """
    if options.in_doubt or options.after:
        options.parser.error("--conn-id goes with no --in-doubt and no --after: a transaction is never in doubt")
    with _told(options.conn_id, "read"):
        found = done_here(
            target_address(find_target(options.conn_id)),
            dag_id=options.of_dag,
            run_id=options.of_run,
            name=options.of_name,
            key=options.of_key,
            limit=options.limit,
        )
    more = f"\nthe newest {options.limit}: --limit shows more" if len(found) == options.limit else ""
    text = table([_row(each) for each in found]) or f"no effects were done through {target_name(options.conn_id)}"
    show(options, {"effects": [_value(each) for each in found]}, text + more)
    return OK


def release_one(options: argparse.Namespace) -> int:
    """
    Allow that what one transaction did is done once more.

    :param options: with ``conn_id``, ``number`` (the try), ``by`` and ``reason``.
    """
    with _told(options.conn_id, "changed"):
        address = target_address(find_target(options.conn_id))
        word = release_here(address, options.number, by=options.by, note=options.reason)
    act = str(options.number)
    if not word.counts:
        text = f"{act}: your word does not count: {word.why}. Nothing was changed"
        show(options, {"act": act, "counts": False, "why": word.why}, text)
        return FINDING
    following = "the next run that comes to it, or its own task cleared with --fresh, does it once more"
    show(options, {"act": act, "counts": True, "by": options.by, "next": following}, f"{act}: {following}")
    return OK


@contextmanager
def _told(conn_id: str, what: str) -> Iterator[None]:
    """Say what is wrong with a target in a sentence."""
    import psycopg

    try:
        yield
    except MISSING as error:
        raise DedupTableError(
            f"there is no dedup table behind {target_name(conn_id)}: no transactional effect was done there"
        ) from error
    except psycopg.Error as error:
        said = " ".join(str(error.diag.message_primary or error).split())
        raise DedupTableError(f"the dedup table behind {target_name(conn_id)} could not be {what} ({said})") from error


def _row(done: DoneHere) -> tuple[str, ...]:
    key = "" if done.effect.key == OWN_KEY else done.effect.key
    return str(done.act), "done", done.effect.name, key, f"{done.done_at:%Y-%m-%d %H:%M:%S}", str(done.execution)


def _value(done: DoneHere) -> dict[str, Any]:
    return {
        "act": str(done.act),
        "name": done.effect.name,
        "key": None if done.effect.key == OWN_KEY else done.effect.key,
        "namespace": done.effect.namespace,
        "state": "succeeded",
        "done_at": done.done_at.isoformat(),
        "dag_id": done.execution.dag_id,
        "run_id": done.execution.run_id,
        "task_id": done.execution.task_id,
        "map_index": done.execution.map_index,
        "generation": done.generation,
    }
