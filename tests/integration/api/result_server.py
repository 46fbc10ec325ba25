"""An API server in a process of its own, whose one submission has succeeded: its memory is looked at from outside."""

from __future__ import annotations

import json
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from airflow_aiflow.api import rights, submission_routes
from airflow_aiflow.api.problem import install
from airflow_aiflow.api.submission_routes import SubmissionRoutes
from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.submission import SubmissionState
from airflow_aiflow.durable.submission_ports import StoredResult
from airflow_aiflow.durable.submitting import Standing
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from tests.integration.api.conftest import User
from tests.unit.durable.one_submission import submission


class Service:
    """
    Have one submission for each result.

    :param results: what they gave, by the end of their ids.
    """

    def __init__(self, results: dict[int, Any]) -> None:
        self._results = results

    def get(self, submission_id: Any) -> Any:
        return submission(submission_id=submission_id, state=SubmissionState.SUCCEEDED)

    def standing(self, one: Any) -> Standing:
        return Standing(one)

    def result(self, one: Any) -> Any:
        return self._results[one.submission_id.int & 0xFF]


def main() -> None:
    said = json.loads(sys.argv[1])
    store = S3ArtifactStore(S3Settings(**said["settings"]))
    ref = ArtifactRef.from_plain(said["file"])
    results = {
        1: ref,
        2: StoredResult(bytes.fromhex(said["value"]), lambda: sys.exit("it was read as a whole")),
        3: "small",
    }
    service: Any = Service(results)
    allow: Any = lambda *_: True  # noqa: E731
    for module in (submission_routes, rights):
        setattr(module, "may", allow)  # noqa: B010  # it is imported there by its name
    app = FastAPI()
    install(app)
    app.include_router(SubmissionRoutes(lambda: service, store=lambda: store).router())
    app.dependency_overrides[rights.signed_in] = lambda: User("ann")
    uvicorn.run(app, host="127.0.0.1", port=said["port"], log_level="warning")


if __name__ == "__main__":
    main()
