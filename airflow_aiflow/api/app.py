"""
The FastAPI app that Airflow's API server mounts under ``/aiflow``.

Errors of ours become answers here and nowhere else; what they say stays in the server's log, for it names hosts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from airflow_aiflow.api.access import scraper_or_viewer
from airflow_aiflow.api.exposition import CONTENT_TYPE, exposition
from airflow_aiflow.api.ledger_metrics import families
from airflow_aiflow.api.looks import Looks
from airflow_aiflow.durable.figures import Figures
from airflow_aiflow.exceptions import AiflowError

URL_PREFIX = "/aiflow"

log = logging.getLogger(__name__)


def create_app(look: Callable[[], Figures] | None = None) -> FastAPI:
    """
    Make the app.

    :param look: takes a look at the ledger; ``None``: at the one behind Airflow's connection.
    """
    # Its routes are described in our pages; a schema would be readable by everybody.
    app = FastAPI(title="aiflow", docs_url=None, redoc_url=None, openapi_url=None)
    looks = Looks(look or _look)

    @app.get("/metrics", dependencies=[Depends(scraper_or_viewer)])
    def metrics() -> Response:
        """Give the ledger's figures in Prometheus' text format."""
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(exposition(families(looks.get())), media_type=CONTENT_TYPE, headers=headers)

    @app.exception_handler(AiflowError)
    async def unavailable(_request: Request, error: AiflowError) -> Response:
        """Say that it is our side, and let the log say what."""
        log.error("aiflow: %s: %s", type(error).__name__, error)
        return JSONResponse({"detail": "aiflow can't answer now; the API server's log says why"}, 503)

    return app


def _look() -> Figures:
    from airflow_aiflow.hooks.aiflow import AiflowHook

    return AiflowHook().figures().look()
