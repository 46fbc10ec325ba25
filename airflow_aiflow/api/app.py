"""The FastAPI app that Airflow's API server mounts under ``/aiflow``, and what its routes work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.responses import Response

from airflow_aiflow.api import problem
from airflow_aiflow.api.access import scraper_or_viewer
from airflow_aiflow.api.body_limit import BodyLimit
from airflow_aiflow.api.event_hub import EventHub
from airflow_aiflow.api.event_routes import EventRoutes
from airflow_aiflow.api.example_page import ExamplePage
from airflow_aiflow.api.exposition import CONTENT_TYPE, exposition
from airflow_aiflow.api.following import Following
from airflow_aiflow.api.ledger_metrics import families
from airflow_aiflow.api.looks import Looks
from airflow_aiflow.api.reading_app import include, reading_here
from airflow_aiflow.api.rights import signed_in
from airflow_aiflow.api.rounds import ServerRound, rounds, tell_ends
from airflow_aiflow.api.serving_submissions import desk, service, store
from airflow_aiflow.api.socket_routes import SocketRoutes
from airflow_aiflow.api.submission_routes import SubmissionRoutes
from airflow_aiflow.api.upload_routes import UploadRoutes
from airflow_aiflow.durable.event_cursor import CursorShelf, Events
from airflow_aiflow.durable.figures import Figures
from airflow_aiflow.storage.postgres_listen import EventListener
from airflow_aiflow.ui import serving

URL_PREFIX = "/aiflow"

DESCRIPTION = "Hand work to a pipeline, go away, come back: the connection and the task live apart."


def create_app(look: Callable[[], Figures] | None = None) -> FastAPI:
    """
    Make the app.

    :param look: takes a look at the ledger; ``None``: at the one behind Airflow's connection.
    """
    # A schema of its own would be readable by everybody; ours is a route like the others.
    app = FastAPI(
        title="aiflow",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=rounds(ServerRound(), tell_ends),
    )
    problem.install(app)
    app.add_middleware(BodyLimit)
    app.include_router(SubmissionRoutes(service, desk=desk, store=store).router())
    app.include_router(UploadRoutes(desk).router())
    following = Following(service, EventHub(_events, _words, _listener), _shelf)
    app.include_router(EventRoutes(following).router())
    app.include_router(SocketRoutes(following).router())
    app.include_router(ExamplePage().router())
    app.add_route(serving.PATH, serving.endpoint(), include_in_schema=False)
    looks = Looks(look or _look)
    include(app, lambda: reading_here(looks))

    @app.get("/metrics", dependencies=[Depends(scraper_or_viewer)])
    def metrics() -> Response:
        """Give the ledger's figures in Prometheus' text format."""
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(exposition(families(looks.get())), media_type=CONTENT_TYPE, headers=headers)

    @app.get("/api/v1/openapi.json", dependencies=[Depends(signed_in)], include_in_schema=False)
    def schema() -> dict[str, Any]:
        """Give the OpenAPI document of these routes."""
        return app.openapi()

    problem.describe(app)
    return app


def _look() -> Figures:
    from airflow_aiflow.hooks.aiflow import AiflowHook

    return AiflowHook().figures().look()


def _events() -> Events:
    from airflow_aiflow.hooks.aiflow import AiflowHook

    return AiflowHook().events()


def _shelf() -> CursorShelf:
    from airflow_aiflow.hooks.aiflow import AiflowHook

    return AiflowHook().cursors()


def _listener() -> EventListener:
    from airflow_aiflow.hooks.aiflow import AiflowHook

    return AiflowHook().listener()


def _words(runs: Any) -> Any:
    from airflow_aiflow.api.airflow_runs import AirflowRuns

    return AirflowRuns().words(runs)
