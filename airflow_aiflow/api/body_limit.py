"""Refuse bodies that are larger than any request of ours needs to be, before they are read."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_aiflow.api.problem import problem

#: Bytes of a body: what is larger belongs into an object store, and its address into the input.
LIMIT = 1 << 20


class BodyLimit:
    """
    Stand before an app.

    :param app: the app.
    :param limit: bytes.
    """

    def __init__(self, app: ASGIApp, limit: int = LIMIT) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, whole or not at all."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = problem(413, f"a body has at most {self._limit} bytes here: put what is larger into an object store")
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._limit:
            await refused(scope, receive, send)
            return
        read: list[Message] = []
        size, more = 0, scope["method"] in ("POST", "PUT", "PATCH")
        while more:
            message = await receive()
            read.append(message)
            size += len(message.get("body", b""))
            if size > self._limit:
                await refused(scope, receive, send)
                return
            more = message["type"] == "http.request" and bool(message.get("more_body"))

        async def replay() -> Message:
            return read.pop(0) if read else await receive()

        await self._app(scope, replay, send)
