"""Errors as RFC 9457 problem documents: what is wrong, where, and what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from airflow_aiflow.api.openapi_examples import complete
from airflow_aiflow.exceptions import AiflowError, SubmissionRefusedError

MEDIA_TYPE = "application/problem+json"

#: A problem, as OpenAPI says it.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457: what is wrong, where, and what to do.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence for people."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}

#: How a user is known: by Airflow's own token, or the cookie of its pages.
SECURITY: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of Airflow's /auth/token."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "_token",
        "description": "Of Airflow's own pages. A change by it has to come from this very site.",
    },
}

log = logging.getLogger(__name__)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> JSONResponse:
    """
    Write a problem.

    :param status: HTTP status.
    :param detail: one sentence for people.
    :param headers: of the answer.
    :param more: further members.
    """
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return _Problem(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


class _Problem(JSONResponse):
    """Write ASCII: what is wrong may be a text that no encoding knows."""

    def render(self, content: Any) -> bytes:
        """Write the document."""
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def install(app: FastAPI) -> None:
    """
    Let every error of an app become a problem.

    :param app: the app.
    """

    @app.exception_handler(HTTPException)
    async def refused(_request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400 and isinstance(error.__cause__, UnicodeDecodeError):
            # FastAPI's word on bytes that are no text; any other body that is no JSON is malformed, too.
            return problem(422, "the body is not UTF-8", errors=[{"pointer": "", "detail": "the body is not UTF-8"}])
        return problem(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(_request: Request, error: RequestValidationError) -> JSONResponse:
        # The input itself is left out: it may hold what is nobody's business in a log.
        found = [{"pointer": _pointer(each["loc"]), "detail": each["msg"]} for each in error.errors()]
        return problem(422, found[0]["detail"] if found else "the request is malformed", errors=found)

    @app.exception_handler(SubmissionRefusedError)
    async def not_taken(_request: Request, error: SubmissionRefusedError) -> JSONResponse:
        return problem(422, str(error), errors=[{"pointer": error.pointer, "detail": str(error)}])

    @app.exception_handler(AiflowError)
    async def unavailable(_request: Request, error: AiflowError) -> JSONResponse:
        log.error("aiflow: %s: %s", type(error).__name__, error)
        return problem(503, "aiflow can't answer now; the API server's log says why", {"Retry-After": "5"})


def describe(app: FastAPI) -> None:
    """
    Let an app's OpenAPI document say what a problem is.

    :param app: the app, with all its routes.
    """
    plain = app.openapi

    def described() -> dict[str, Any]:
        document = plain()
        parts = document.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = SCHEMA
        parts["securitySchemes"] = SECURITY
        document["security"] = [{name: []} for name in SECURITY]
        complete(document)
        return document

    app.openapi = described  # type: ignore[method-assign]


def _pointer(place: tuple[Any, ...]) -> str:
    parts = place[1:] if place and place[0] in ("body", "query", "path", "header") else place
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
