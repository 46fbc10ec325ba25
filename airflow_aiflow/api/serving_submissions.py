"""Put together, once a process, what takes submissions in Airflow's API server."""

from __future__ import annotations

from functools import cache

from airflow_aiflow.durable.submitting import SubmissionService


@cache
def service() -> SubmissionService:
    """
    Give what takes submissions.

    :raises AiflowConfigError: if a connection or an option is missing or wrong.
    """
    from airflow_aiflow import config
    from airflow_aiflow.api.airflow_runs import AirflowRuns
    from airflow_aiflow.hooks.aiflow import AiflowHook

    hook = AiflowHook()
    return SubmissionService(
        hook.submissions(),
        hook.runs(),
        AirflowRuns(),
        window_days=config.submit_key_window(),
        pace=config.submit_pace(),
        cancel_grace=config.cancel_grace(),
        callbacks=config.callback_rules(),
    )
