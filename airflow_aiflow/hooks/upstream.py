"""
Read what has run above a task: the evidence on which a cleared task knows whether it is the top of the clear.

Setup and teardown tasks do not count: Airflow clears a task's setups with it, so that they would make every clear look
like one from further above.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from airflow_aiflow.durable.attempt import NOTHING_ABOVE, digest_upstream
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.hooks.airflow_api import AirflowApi

log = logging.getLogger(__name__)

#: States in which Airflow lists a task instance among a run's breadcrumbs.
FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


def upstream_digest(ti: Any, task: Any, execution: ExecutionId) -> bytes | None:
    """
    Hash what has run above a task.

    :param ti: Airflow's, of the running task.
    :param task: the same task.
    :param execution: the same again.
    :return: ``None``: it could not be read; the next clear then has nothing to compare with.
    """
    try:
        above = _above(task)
    except Exception:  # evidence for one decision after a clear; its lack must not cost the task
        log.warning("aiflow: what is above %s can't be read; a later clear can't compare it", execution, exc_info=True)
        return None
    if not above:
        return NOTHING_ABOVE
    try:
        return _digest(above, ti.get_task_breadcrumbs(execution.dag_id, execution.run_id))
    except Exception as error:
        return _over_rest(above, execution, error)


def _above(task: Any) -> set[str]:
    dag = task.get_dag()
    return {
        task_id
        for task_id in task.get_flat_relative_ids(upstream=True)
        if dag is None or not (dag.get_task(task_id).is_setup or dag.get_task(task_id).is_teardown)
    }


def _digest(above: set[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    return digest_upstream(
        (row["task_id"], row["map_index"], row["duration"]) for row in rows if row["task_id"] in above
    )


def _over_rest(above: set[str], execution: ExecutionId, why: Exception) -> bytes | None:
    try:
        with closing(open_api()) as api:
            rows = api.task_instances(execution.dag_id, execution.run_id)
            return _digest(above, (row for row in rows if row["state"] in FINISHED))
    except Exception as error:
        log.warning(
            "aiflow: what ran above %s can't be read (%s; by the REST API: %s); a later clear can't compare it",
            execution,
            why,
            error,
        )
        return None


def open_api() -> AirflowApi:
    """
    Open Airflow's REST API behind the deployment's connection, ``[aiflow] api_conn_id``.

    :raises AiflowConfigError: if the connection is not there, of another type or incomplete.
    """
    from airflow_aiflow.config import flow_settings
    from airflow_aiflow.hooks.aiflow import existing_connection
    from airflow_aiflow.hooks.airflow_api import api_of

    conn_id = flow_settings().api_conn_id
    found = existing_connection(conn_id, "Airflow's REST API", "http://USER:PASSWORD@HOST:8080")
    return api_of(
        f"connection '{conn_id}'",
        conn_type=found.conn_type,
        schema=found.schema,
        host=found.host,
        port=found.port,
        login=found.login,
        password=found.password,
        extra=found.extra_dejson,
    )
