"""
Serve the program's files from memory. They are program text alone, the same for everybody, so no sign-in is asked.

A server gives what it has under any version: while a deployment is being upgraded, the page of one server asks another.
Only under its own version may a browser keep the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from airflow_aiflow.ui.program import MEDIA_TYPES, files, version

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PATH = "/static/{version}/{name}"


def endpoint() -> Callable[[Request], Response]:
    """Give the function behind the route; made lazily, since it brings the web framework."""
    from starlette.responses import Response

    def serve(request: Request) -> Response:
        name = request.path_params["name"]
        body = files().get(name)
        headers = {"X-Content-Type-Options": "nosniff"}
        if body is None:
            return Response(status_code=404, headers=headers)
        known = request.path_params["version"] == version()
        headers["Cache-Control"] = "public, max-age=31536000, immutable" if known else "no-cache"
        return Response(body, media_type=MEDIA_TYPES[PurePosixPath(name).suffix], headers=headers)

    return serve
