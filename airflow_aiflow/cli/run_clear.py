"""
Carry out `aiflow runs clear`: preview it, wish, let Airflow clear, tell.

A wish is written before Airflow is asked, for the new attempt may start before the answer is read. Where Airflow
refuses, it is withdrawn; where no answer comes, it counts for ten minutes more.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_aiflow.cli.api_address import VARIABLE, find_api
from airflow_aiflow.cli.clear_table import as_text
from airflow_aiflow.cli.output import FINDING, OK, show
from airflow_aiflow.cli.run_address import RunAddress, TaskAddress, task_names
from airflow_aiflow.cli.run_lists import open_runs
from airflow_aiflow.durable.attempt import OnClear
from airflow_aiflow.durable.clear_preview import Instance, Preview, as_json, preview
from airflow_aiflow.durable.run_view import ExecutionView
from airflow_aiflow.exceptions import AiflowConfigError, AirflowRefusedError, ClearRefusedError, RunNotFoundError
from airflow_aiflow.storage.postgres_runs import PostgresRuns

if TYPE_CHECKING:
    from airflow_aiflow.hooks.airflow_api import AirflowApi


def run_clear(options: argparse.Namespace) -> int:
    """
    Clear task instances of a run, or say what would happen.

    :raises AiflowConfigError: if nothing says where Airflow's API or the ledger is.
    :raises RunNotFoundError: if Airflow does not know the run or a task.
    :raises ClearRefusedError: if a task waits for a person's answer.
    """
    api = find_api(options)
    if api is None:
        raise AiflowConfigError(
            f"where is Airflow? It clears the tasks, by its REST API: set {VARIABLE} to a connection of type http, "
            "such as http://USER:PASSWORD@HOST:8080, or start the embedded stack by `aiflow up`"
        )
    with closing(api), open_runs(options) as runs:
        return _clear(options, api, runs)


def _clear(options: argparse.Namespace, api: AirflowApi, runs: PostgresRuns) -> int:
    run: RunAddress = options.RUN
    instances = _asked(options, api, dry_run=True)
    if not instances:
        show(options, {"run": str(run), "cleared": []}, f"{run}: there is nothing to clear")
        return FINDING
    views = runs.executions(*run)
    wish = _wish(options)
    if options.preview:
        found = _preview(run, instances, views, api, wish)
        show(options, as_json(found), as_text(found, wish))
        return OK
    chosen = {(one.task_id, one.map_index) for one in instances}
    cleared = [view for view in views if (view.execution.task_id, view.execution.map_index) in chosen]
    if not options.force:
        _refuse_waiting(cleared)
    keys = [view.execution_pk for view in cleared]
    if wish is not None:
        runs.wish(keys, wish)
    try:
        done = _asked(options, api, dry_run=False)
    except AirflowRefusedError:
        if wish is not None:
            runs.withdraw(keys)
        raise
    if wish is not None:
        runs.cleared(keys)
    names = task_names(sorted((one.task_id, one.map_index) for one in done))
    how = {"fresh": "; each starts anew, effects are kept", "resume": "; each resumes", None: ""}[wish]
    value = {"run": str(run), "on_clear": wish, "cleared": [[one.task_id, one.map_index] for one in done]}
    show(options, value, f"{run}: cleared {len(done)} task instances: {names}{how}")
    return OK


def _asked(options: argparse.Namespace, api: AirflowApi, *, dry_run: bool) -> list[Instance]:
    run: RunAddress = options.RUN
    tasks: list[TaskAddress] | None = options.task
    if dry_run and tasks:
        _refuse_unknown(run, tasks, api)
    try:
        found = api.clear(
            *run,
            task_ids=None if tasks is None else [_marker(task) for task in tasks],
            dry_run=dry_run,
            downstream=options.downstream,
            upstream=options.upstream,
            only_failed=options.only_failed,
        )
    except AirflowRefusedError as error:
        if error.status == 404:
            raise _unknown_run(run) from error
        raise
    return [Instance(one["task_id"], one["map_index"], one["state"]) for one in found]


def _marker(task: TaskAddress) -> str | list[str | int]:
    return task.task_id if task.map_index is None else [task.task_id, task.map_index]


def _unknown_run(run: RunAddress) -> RunNotFoundError:
    return RunNotFoundError(f"Airflow knows no run {run.run_id} of {run.dag_id}. Nothing was cleared")


def _refuse_unknown(run: RunAddress, tasks: list[TaskAddress], api: AirflowApi) -> None:
    """Refuse a task that the run does not have: Airflow takes an unknown id for an empty selection."""
    try:
        there = [(one["task_id"], one["map_index"]) for one in api.task_instances(*run)]
    except AirflowRefusedError as error:
        if error.status == 404:
            raise _unknown_run(run) from error
        raise
    for task in tasks:
        if not any(task.matches(*one) for one in there):
            known = ", ".join(sorted({task_id for task_id, _ in there}))
            raise RunNotFoundError(f"run {run} has no task {task}; it has {known}. Nothing was cleared")


def _refuse_waiting(views: list[ExecutionView]) -> None:
    waiting = [(question, view) for view in views for question in view.questions]
    if waiting:
        question, view = waiting[0]
        more = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
        raise ClearRefusedError(
            f"{view.execution} waits for a person's answer to #{question.number}{more}: {question.subject}. Nothing "
            f"was cleared. Answer it first (`aiflow effects show {question.number}`), or clear it "
            "all the same by --force: the new attempt asks the same question again"
        )


def _wish(options: argparse.Namespace) -> OnClear | None:
    if options.fresh:
        return "fresh"
    return "resume" if options.resume else None


def _preview(
    run: RunAddress, instances: list[Instance], views: list[ExecutionView], api: AirflowApi, wish: OnClear | None
) -> Preview:
    tasks: list[dict[str, Any]] = api.tasks(run.dag_id)
    return preview(
        instances,
        views,
        downstream={str(task["task_id"]): task["downstream_task_ids"] or [] for task in tasks},
        assets=api.assets_of(run.dag_id),
        wish=wish,
        dag_id=run.dag_id,
    )
