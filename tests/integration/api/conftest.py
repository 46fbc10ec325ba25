"""One app on a real ledger; Airflow's runs and users are stand-ins here, real ones in tests/airflow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient

from airflow_aiflow.api import following, rights, submission_routes
from airflow_aiflow.api.event_hub import EventHub
from airflow_aiflow.api.event_routes import EventRoutes
from airflow_aiflow.api.example_page import ExamplePage
from airflow_aiflow.api.following import Following
from airflow_aiflow.api.problem import install
from airflow_aiflow.api.socket_routes import SocketRoutes
from airflow_aiflow.api.submission_routes import SubmissionRoutes
from airflow_aiflow.api.upload_routes import UploadRoutes
from airflow_aiflow.durable.artifact_parts import PartialReads
from airflow_aiflow.durable.submission import Submission
from airflow_aiflow.durable.submitting import SubmissionService
from airflow_aiflow.durable.upload import UploadDesk
from airflow_aiflow.exceptions import SubmissionRefusedError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres_cursors import PostgresCursors
from airflow_aiflow.storage.postgres_events import PostgresEvents
from airflow_aiflow.storage.postgres_listen import EventListener
from airflow_aiflow.storage.postgres_progress import PostgresProgress
from airflow_aiflow.storage.postgres_runs import PostgresRuns
from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions

URL = "/aiflow/api/v1/submissions"
BODY = {"pipeline": "answer", "input": {"question": "why?"}, "idempotency_key": "k1"}


@dataclass
class FakeRun:
    state: str = "queued"
    held: bool = False


@dataclass
class FakeRuns:
    """Be Airflow, with one DAG."""

    runs: dict[str, FakeRun] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    cleared: list[tuple[str, bool]] = field(default_factory=list)
    #: What was brought back by each release, and kept at work by each stop.
    released: list[list[tuple[str, int]]] = field(default_factory=list)
    kept: list[list[tuple[str, int]]] = field(default_factory=list)
    asked: int = 0
    away: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, pipeline: str, given: Mapping[str, Any]) -> None:
        if pipeline not in ("answer", "secret"):
            raise LookupError(pipeline)
        unknown = set(given) - {"question", "doc"}
        if unknown:
            raise SubmissionRefusedError("unknown parameter", "/input/" + unknown.pop())

    def make(self, submission: Submission) -> None:
        if self.away:
            raise ConnectionError("Airflow's database is away")
        with self.lock:
            self.runs.setdefault(submission.run_id, FakeRun())

    def look(self, submission: Submission) -> FakeRun | None:
        return self.runs.get(submission.run_id)

    def look_many(self, submissions: Sequence[Submission]) -> dict[tuple[str, str], FakeRun]:
        self.asked += 1
        return {one.run: self.runs[one.run_id] for one in submissions if one.run_id in self.runs}

    def hold(self, submission: Submission) -> None:
        self.runs[submission.run_id].held = True

    def release(self, submission: Submission, waiting: Collection[tuple[str, int]]) -> None:
        self.runs[submission.run_id].held = False
        self.released.append(sorted(waiting))

    def stop(self, submission: Submission, keep: Collection[tuple[str, int]]) -> bool:
        self.runs[submission.run_id].held = False
        self.kept.append(sorted(keep))
        return bool(keep)

    def end(self, submission: Submission) -> None:
        if submission.run_id in self.runs:
            self.runs[submission.run_id].state = "failed"

    def again(self, submission: Submission, *, only_failed: bool) -> bool:
        self.cleared.append((submission.run_id, only_failed))
        self.runs[submission.run_id].state = "queued"
        return submission.run_id in self.runs

    def words(self, runs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        return {run: self.runs[run[1]].state for run in runs if run[1] in self.runs}

    def result(self, submission: Submission) -> Any:
        return self.results[submission.run_id]


@dataclass(frozen=True)
class User:
    """Be a user; the name says what is allowed."""

    name: str

    def get_id(self) -> str:
        return self.name


class World:
    """Hold one app and what is behind it."""

    def __init__(self, dsn: str, runs: FakeRuns | None = None) -> None:
        self.runs = FakeRuns() if runs is None else runs
        self.submissions, self.reader = PostgresSubmissions.connect(dsn), PostgresRuns.connect(dsn)
        progress = PostgresProgress(Connections(dsn, 1), PayloadCipher())
        self.service = SubmissionService(self.submissions, self.reader, self.runs, window_days=30, progress=progress)
        self.user = User("ann")
        self.desk: UploadDesk | None = None
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None
        self.dsn = dsn
        self.events = PostgresEvents.connect(dsn)
        self.cursors = PostgresCursors.connect(dsn)
        self.hub = EventHub(lambda: self.events, self.runs.words, lambda: EventListener(dsn))
        self.store: PartialReads = MemoryArtifactStore()
        app = FastAPI()
        install(app)
        routes = SubmissionRoutes(lambda: self.service, self.wait, lambda: self.desk, lambda: self.store)
        app.include_router(routes.router())
        app.include_router(UploadRoutes(lambda: self.desk).router())
        follows = Following(lambda: self.service, self.hub, lambda: self.cursors)
        app.include_router(EventRoutes(follows).router())
        app.include_router(SocketRoutes(follows).router())
        app.include_router(ExamplePage(self.signed_in).router())
        app.dependency_overrides[rights.signed_in] = lambda: self.user
        self.server = server = FastAPI()
        server.mount("/aiflow", app)  # as Airflow's API server does
        self.client = TestClient(server, raise_server_exceptions=False)

    def sql(self, text: LiteralString) -> None:
        """Change the ledger as no client could."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(text)

    async def signed_in(self, request: Request) -> User:
        if self.user.name == "nobody":
            raise HTTPException(401, "Not authenticated")
        return self.user

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.on_wait()

    def submit(self, **changes: Any) -> Any:
        return self.client.post(URL, json=BODY | changes)


@pytest.fixture(scope="module")
def migrated(postgres_server: PostgresServer) -> str:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    return dsn


@pytest.fixture
def world(migrated: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "truncate aiflow.submission, aiflow.submit_pace, aiflow.callback, aiflow.upload, aiflow.execution, "
            "aiflow.attempt, aiflow.lease, aiflow.event, aiflow.step, aiflow.effect, aiflow.intent cascade"
        )
    made = World(migrated)

    def may(user: Any, method: str, dag_id: str, entity: object = None) -> bool:
        allowed = {"ann": {"GET", "POST", "PUT"}, "reader": {"GET"}}.get(user.name, set())
        return dag_id != "secret" and method in allowed

    monkeypatch.setattr(rights, "may", may)
    monkeypatch.setattr(submission_routes, "may", may)
    monkeypatch.setattr(following, "may", may)
    monkeypatch.setattr(submission_routes, "readable", lambda user: ("answer",) if may(user, "GET", "answer") else ())
    yield made
    made.submissions.close()
    made.reader.close()
    made.events.close()
    made.cursors.close()
