"""
Hand work to a pipeline, go away, come back: ``AiflowClient`` and, for asyncio, ``AsyncAiflowClient``.

Needs nothing of Airflow. The connection and the task live apart: every method may be called again after a lost answer.
"""

from airflow_aiflow.client.asynchronous import AsyncAiflowClient
from airflow_aiflow.client.protocol import Event, SubmissionFailedError, SubmitError
from airflow_aiflow.client.synchronous import AiflowClient

__all__ = ["AiflowClient", "AsyncAiflowClient", "Event", "SubmissionFailedError", "SubmitError"]
