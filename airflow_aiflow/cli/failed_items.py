"""
Carry out `aiflow batch failed` and `aiflow batch retry-failed`.

The items are marked before Airflow is asked to clear their tasks, for the new attempt may start before the answer is
read; where Airflow refuses, the mark counts for the next attempt, whoever starts it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from airflow_aiflow.cli import run_clear
from airflow_aiflow.cli.ledger_address import find_ledger, stack_in_mind
from airflow_aiflow.cli.output import FINDING, OK, show, table
from airflow_aiflow.cli.run_address import RunAddress, TaskAddress
from airflow_aiflow.cli.run_lists import not_found
from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId
from airflow_aiflow.durable.items import FailedItem, ItemLedger
from airflow_aiflow.exceptions import PayloadDecodeError
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_runs import PostgresRuns

Failed = tuple[ExecutionId, int, int, FailedItem]

#: Characters of an error in a table; ``--json`` gives it whole.
ERROR_WIDTH = 80


@contextmanager
def _open(options: argparse.Namespace) -> Iterator[ItemLedger]:
    with stack_in_mind(options), closing(PostgresLedger.connect(find_ledger(options))) as ledger:
        ledger.check()
        yield ledger.items


def _chosen(options: argparse.Namespace, items: ItemLedger) -> list[Failed]:
    run: RunAddress = options.RUN
    tasks: list[TaskAddress] | None = options.task
    failed = items.failed_of_run(*run)
    if not failed:
        _refuse_unknown(options)
    return [
        found
        for found in failed
        if tasks is None or any(task.matches(found[0].task_id, found[0].map_index) for task in tasks)
    ]


def _refuse_unknown(options: argparse.Namespace) -> None:
    """Tell a run whose items all have results from one that this ledger never saw: misspelt, or another stack's."""
    with closing(PostgresRuns.connect(find_ledger(options))) as runs:
        if not runs.executions(*options.RUN):
            raise not_found(options.RUN)


def run_failed(options: argparse.Namespace) -> int:
    """
    List the items that have no result.

    :raises AiflowConfigError: if nothing says where the ledger is.
    :raises RunNotFoundError: if the ledger knows nothing of the run.
    """
    with _open(options) as items:
        found = _chosen(options, items)
    if not found:
        show(options, {"failed": []}, f"{options.RUN}: no item of a map has failed")
        return OK
    rows = [("TASK", "MAP", "ITEM", "KEY", "STATE", "TRIES", "AT", "ERROR"), *map(_row, found)]
    show(options, {"failed": [_plain(each) for each in found]}, table(rows))
    return FINDING


def run_retry_failed(options: argparse.Namespace) -> int:
    """
    Let the tasks of failed items run those items, and nothing else, once more.

    :raises AiflowConfigError: if nothing says where Airflow's API or the ledger is.
    :raises RunNotFoundError: if Airflow, or the ledger, does not know the run.
    :raises ClearRefusedError: if a task waits for a person's answer.
    """
    with _open(options) as items:
        found = [each for each in _chosen(options, items) if each[3].state != "at_work"]
        executions = {(execution, pk, generation): None for execution, pk, generation, _ in found}
        if not executions:
            show(options, {"cleared": []}, f"{options.RUN}: no item of a map has failed")
            return FINDING
        for _, pk, generation in executions:
            items.retry_items(pk, generation)
    clearing = argparse.Namespace(
        **vars(options)
        | {
            "task": [_address(execution) for execution, *_ in executions],
            "upstream": False,
            "only_failed": False,
            "preview": False,
            "fresh": False,
            "resume": True,
            "force": False,
        }
    )
    return run_clear.run_clear(clearing)


def _address(execution: ExecutionId) -> TaskAddress:
    return TaskAddress(execution.task_id, None if execution.map_index == UNMAPPED else execution.map_index)


def _error(item: FailedItem) -> str:
    from airflow_aiflow.durable.payload import decode

    if item.error is None:
        return "no word of it: its process was lost"
    try:
        plain = decode(item.error)
        return f"{plain['type']}: {plain['message']}"
    except PayloadDecodeError:
        return "encrypted: the task log has it"


def _row(found: Failed) -> Sequence[str]:
    execution, _, _, item = found
    error = " ".join(_error(item).split())
    return (
        str(_address(execution)),
        item.name,
        str(item.number),
        item.key or "",
        item.state,
        str(item.failures),
        "" if item.at is None else f"{item.at:%Y-%m-%d %H:%M:%S}",
        error if len(error) <= ERROR_WIDTH else f"{error[: ERROR_WIDTH - 3]}...",
    )


def _plain(found: Failed) -> dict[str, Any]:
    execution, _, generation, item = found
    return {
        "task_id": execution.task_id,
        "map_index": execution.map_index,
        "generation": generation,
        "map": item.name,
        "item": item.number,
        "key": item.key,
        "state": item.state,
        "failures": item.failures,
        "kills": item.kills,
        "error": _error(item),
        "at": item.at,
    }
