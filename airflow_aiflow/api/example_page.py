"""
``/aiflow/example``: a page that hands work in and follows it, for signed-in users alone.

Nothing of it comes from elsewhere, and its policy lets nothing in: no script but its own files, no connection but to
this server, no frame around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from airflow_aiflow.api.rights import signed_in
from airflow_aiflow.ui.example_page import MEDIA_TYPES, files

HEADERS = {
    "Cache-Control": "no-cache, private",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

PAGE = "index.html"

#: Where Airflow's own pages send who is signed out, seen from this one.
LOGIN = "../api/v2/auth/login?next="


class ExamplePage:
    """
    Serve the page.

    :param user: gives who asks, or refuses.
    """

    def __init__(self, user: Callable[[Request], Awaitable[object]] = signed_in) -> None:
        self._user = user

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(include_in_schema=False)
        routes.add_api_route("/example", self.page, methods=["GET"], response_class=Response)
        routes.add_api_route("/example/{name}", self.part, methods=["GET"], response_class=Response)
        return routes

    async def page(self, request: Request) -> Response:
        """Give the page, or send who is signed out to Airflow's own sign-in."""
        try:
            await self._user(request)
        except HTTPException as refused:
            if refused.status_code != 401:
                raise
            return RedirectResponse(LOGIN + quote(request.url.path), 307, headers={"Cache-Control": "no-store"})
        return _file(PAGE)

    async def part(self, name: str, request: Request) -> Response:
        """Give one of its files."""
        await self._user(request)
        if name == PAGE or name not in MEDIA_TYPES:
            raise HTTPException(404, "the example has no such file")
        return _file(name)


def _file(name: str) -> Response:
    return Response(files()[name], headers=HEADERS | {"Content-Type": MEDIA_TYPES[name]})
