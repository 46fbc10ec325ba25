"""The connection type ``minio``: any S3 server, spoken to through the minio SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from airflow_aiflow.storage.s3 import S3ArtifactStore


class MinioHook(BaseHook):
    """
    Give the artifact store behind a connection.

    :param minio_conn_id: a connection of type ``minio`` or ``aws``.
    """

    conn_name_attr = "minio_conn_id"
    default_conn_name = "aiflow_artifacts"
    conn_type = "minio"
    hook_name = "S3 server (minio SDK)"

    def __init__(self, minio_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.minio_conn_id = minio_conn_id

    def get_conn(self) -> S3ArtifactStore:
        """
        Give the artifact store.

        :raises AiflowConfigError: if the connection is not there, or a field is missing or wrong.
        """
        from airflow_aiflow.hooks.aiflow import open_artifact_store

        return open_artifact_store(self.minio_conn_id)

    def test_connection(self) -> tuple[bool, str]:
        """
        Store, read and remove one small object, as the form's button "Test" asks.

        :return: whether it worked, and what was found.
        """
        from airflow_aiflow.exceptions import AiflowError

        try:
            store = self.get_conn()
            try:
                report = store.probe()
            finally:
                store.close()
        except AiflowError as error:
            return False, str(error)
        settings = store.settings
        return True, f"stored, read and removed an object in bucket '{settings.bucket}' of {report.server}"
