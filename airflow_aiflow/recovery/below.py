"""
What Airflow failed below a task that was lost, and that is to run again with it.

Between the request that sets a lost task failed and the one that clears it, the scheduler may fail what comes below,
and end the run. Both are taken back right after the clear. Whoever is killed in between leaves that to a later pass:
the ledger shows a requeue whose attempt has begun and of which nobody said that all was done.

Not covered: where the task that came back ends before that pass, its run counts as failed for some seconds, and
callbacks of the DAG are told so.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.recover import ENDED_RUN
from airflow_aiflow.durable.recovery_port import RecoveryLedger
from airflow_aiflow.exceptions import AirflowRefusedError, AirflowUnavailableError
from airflow_aiflow.hooks.airflow_api import AirflowApi
from airflow_aiflow.recovery.airflow_view import AirflowView, name

log = logging.getLogger(__name__)

#: The word by which Airflow's audit log knows our clears.
BY = "aiflow-recovery"

#: Airflow's words for a task below which nothing is to run.
STOPS = frozenset({"failed", "upstream_failed", "removed"})

CONFLICT = 409


def clear(api: AirflowApi, run: tuple[str, str], executions: Iterable[ExecutionId]) -> None:
    """
    Clear task instances of one run, where none of them runs.

    :param api: Airflow's REST API.
    :param run: DAG and run.
    :param executions: which ones.
    :raises AirflowRefusedError: if one of them runs, or for any other reason.
    """
    names = [name(one) for one in executions]
    api.clear(*run, task_ids=names, dry_run=False, prevent_running_task=True, by=BY)


def failed_below(
    api: AirflowApi, run: tuple[str, str], above: Collection[str], *, by_those_alone: bool = False
) -> list[ExecutionId]:
    """
    List the task instances below some tasks that Airflow failed for what came before them.

    :param api: Airflow's REST API.
    :param run: DAG and run.
    :param above: ids of the tasks.
    :param by_those_alone: leave out what is below another task that has failed: that one is why, and it would only
        fail again.
    """
    states = ["upstream_failed", "failed"] if by_those_alone else ["upstream_failed"]
    rows = list(api.task_instances(*run, states=states))
    if not any(row["state"] == "upstream_failed" for row in rows):
        return []
    next_ones = {task["task_id"]: task["downstream_task_ids"] for task in api.tasks(run[0])}
    wanted = _below(next_ones, above) - _below(next_ones, {row["task_id"] for row in rows if row["state"] == "failed"})
    return [
        ExecutionId(*run, row["task_id"], row["map_index"])
        for row in rows
        if row["state"] == "upstream_failed" and row["task_id"] in wanted
    ]


def _below(next_ones: Mapping[str, Sequence[str]], above: Collection[str]) -> set[str]:
    below: set[str] = set()
    todo = list(above)
    while todo:
        for task_id in next_ones.get(todo.pop(), ()):
            if task_id not in below:
                below.add(task_id)
                todo.append(task_id)
    return below


def take_back(api: AirflowApi, run: tuple[str, str], above: Collection[str], before: Collection[ExecutionId]) -> bool:
    """
    Take back what the scheduler wrote between the two requests: by now it has, for both lock the run.

    :param api: Airflow's REST API.
    :param run: DAG and run.
    :param above: ids of the tasks that were cleared.
    :param before: what was cleared with them.
    :return: whether it is done; else a later pass makes up for it.
    """
    try:
        later = [one for one in failed_below(api, run, above) if one not in before]
        if later:
            clear(api, run, later)
        # A clear that met a run at work does not begin it again where the scheduler ended it at that moment.
        if api.run(*run)["state"] in ENDED_RUN:
            api.set_run_state(*run, "queued", by=BY)
    except (AirflowRefusedError, AirflowUnavailableError) as error:
        log.warning("aiflow: what failed below in run %s of %s may not have been cleared: %s", run[1], run[0], error)
        return False
    return True


def make_up(ledger: RecoveryLedger, api: AirflowApi) -> list[ExecutionId]:
    """
    Clear what others left who were killed between a clear and what follows it.

    :param ledger: knows them.
    :param api: Airflow's REST API.
    :return: what was cleared.
    :raises AirflowUnavailableError: if Airflow does not answer; what was not done is found again.
    """
    runs: dict[tuple[str, str], list[tuple[int, int, ExecutionId]]] = {}
    for one in ledger.broken_off():
        runs.setdefault((one[2].dag_id, one[2].run_id), []).append(one)
    cleared: list[ExecutionId] = []
    for run, broken in runs.items():
        try:
            cleared += _of_run(api, run, [execution for _, _, execution in broken])
        except AirflowRefusedError as error:
            if error.status == CONFLICT:
                continue  # one of them has begun to run by itself: the next look sees it
            log.warning("aiflow: what failed below in run %s of %s stays so: %s", run[1], run[0], error)
        ledger.made_up([(pk, fence) for pk, fence, _ in broken])
    return cleared


def _of_run(api: AirflowApi, run: tuple[str, str], lost: Sequence[ExecutionId]) -> list[ExecutionId]:
    view = AirflowView(api)
    seen = view.closely(view.read(lost))
    # What has failed again, or was ended by a person, keeps what is below it from running.
    going = [
        one for one, now in seen.items() if now.ti_id is not None and now.state not in STOPS and now.person is None
    ]
    if not going:
        return []
    below = failed_below(api, run, {one.task_id for one in going}, by_those_alone=True)
    if below:
        clear(api, run, below)
        log.warning(
            "aiflow: a requeue in run %s of %s was broken off: %d tasks below run again", run[1], run[0], len(below)
        )
    return below
