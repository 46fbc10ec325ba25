"""Put together, once a process, what takes submissions in Airflow's API server."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from airflow_aiflow.durable.submitting import SubmissionService

if TYPE_CHECKING:
    from airflow_aiflow.durable.upload import UploadDesk
    from airflow_aiflow.storage.s3 import S3ArtifactStore


def store() -> S3ArtifactStore:
    """
    Give the artifact store.

    :raises AiflowConfigError: if the connection is not there or of another type.
    """
    from airflow_aiflow.hooks.aiflow import AiflowHook
    from airflow_aiflow.storage.s3 import S3ArtifactStore

    found = AiflowHook().artifact_store()
    assert isinstance(found, S3ArtifactStore)  # whatever the connection is: it speaks S3
    return found


@cache
def desk() -> UploadDesk | None:
    """
    Give what takes uploads; ``None``: they are off.

    :raises AiflowConfigError: if a connection or an option is missing or wrong.
    """
    from airflow_aiflow import config
    from airflow_aiflow.durable.upload import UploadDesk
    from airflow_aiflow.hooks.aiflow import AiflowHook

    limit = config.upload_limit()
    if not limit:
        return None
    found = store()
    return UploadDesk(AiflowHook().uploads(), found.staging, found, limit=limit)


@cache
def service() -> SubmissionService:
    """
    Give what takes submissions.

    :raises AiflowConfigError: if a connection or an option is missing or wrong.
    """
    from airflow_aiflow import config
    from airflow_aiflow.api.airflow_runs import AirflowRuns
    from airflow_aiflow.hooks.aiflow import AiflowHook
    from airflow_aiflow.storage.postgres_progress import PostgresProgress

    hook = AiflowHook()
    return SubmissionService(
        hook.submissions(),
        hook.runs(),
        AirflowRuns(),
        window_days=config.submit_key_window(),
        pace=config.submit_pace(),
        cancel_grace=config.cancel_grace(),
        callbacks=config.callback_rules(),
        progress=PostgresProgress(hook.readers(), hook.cipher()),
    )
