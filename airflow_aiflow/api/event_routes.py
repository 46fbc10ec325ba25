"""
Server-sent events of submissions: ``id:`` is the cursor, by which a client goes on where it was cut off.

A stream ends once its submissions have: the last event tells their states. Comments keep proxies from closing it. One
that is asked for with ``wait`` ends soon, for those whom a proxy gives an answer only once it is whole.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any
from uuid import UUID

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, Header, HTTPException, Query
from fastapi.responses import StreamingResponse

from airflow_aiflow.api.following import EventTold, Following, Quiet, Told
from airflow_aiflow.api.rights import SignedIn
from airflow_aiflow.api.submission_routes import ERRORS, LONGEST_WAIT, MISSING
from airflow_aiflow.durable.event_cursor import LONGEST
from airflow_aiflow.durable.payload import encode

#: Submissions on one stream.
MOST = 100

HEADERS = {
    "Cache-Control": "no-cache, no-store",
    "X-Accel-Buffering": "no",  # else a proxy of nginx keeps events until its buffer is full
    "X-Content-Type-Options": "nosniff",
}

#: Where a client begins that was never here: by its header, which browsers send, or its query.
LastId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=LONGEST)]
After = Annotated[str | None, Query(max_length=LONGEST, description="The cursor of the last event that was seen.")]
Wait = Annotated[
    float | None,
    Query(
        ge=0,
        le=LONGEST_WAIT,
        description="End once there was news, or after so many seconds: for who is behind a proxy that holds streams.",
    ),
]

States = Annotated[bool, Query(description="Tell how they stand, and no event: for who waits for the end alone.")]


class EventRoutes:
    """
    Serve streams.

    :param following: follows submissions.
    """

    def __init__(self, following: Following) -> None:
        self._following = following

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1", tags=["events"], responses=ERRORS)
        told: dict[str, Any] = {
            "response_class": StreamingResponse,
            "responses": {200: {"content": {"text/event-stream": {}}, "description": "Events, until the end."}},
        }
        routes.add_api_route("/submissions/{submission_id}/events", self.of_one, methods=["GET"], **told)
        routes.add_api_route("/events", self.of_many, methods=["GET"], **told)
        return routes

    async def of_one(
        self,
        submission_id: UUID,
        user: SignedIn,
        after: After = None,
        last_event_id: LastId = None,
        wait: Wait = None,
        states: States = False,
    ) -> StreamingResponse:
        """Follow one submission."""
        return await self._followed([submission_id], user, last_event_id or after, wait=wait, states=states)

    async def of_many(
        self,
        submission_id: Annotated[list[UUID], Query(min_length=1, max_length=MOST)],
        user: SignedIn,
        after: After = None,
        last_event_id: LastId = None,
        wait: Wait = None,
        states: States = False,
    ) -> StreamingResponse:
        """Follow many on one connection."""
        ids = list(dict.fromkeys(submission_id))
        return await self._followed(ids, user, last_event_id or after, wait=wait, states=states)

    async def _followed(self, ids: Sequence[UUID], user: BaseUser, after: str | None, **how: Any) -> StreamingResponse:
        try:
            cursor = await self._following.cursor(after or "")
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        try:
            found = await self._following.found(ids, user)
        except LookupError as error:
            raise HTTPException(404, MISSING) from error
        told = self._following.told(found, cursor, user, **how)
        return StreamingResponse(self._written(told), media_type="text/event-stream", headers=HEADERS)

    async def _written(self, told: AsyncIterator[Told]) -> AsyncIterator[bytes]:
        # Also the first sign of life, by which a client knows that nobody holds the stream back.
        yield b"retry: 2000\n\n"
        async for each in told:
            yield _written(each)


def _written(told: Told) -> bytes:
    if isinstance(told, Quiet):
        return b": still here\n\n"
    # JSON holds no line break of its own.
    text = as_json(told.plain)
    if isinstance(told, EventTold):
        return f"id: {told.cursor}\nevent: event\ndata: {text}\n\n".encode("utf-8", "replace")
    return f"event: state\ndata: {text}\n\n".encode("utf-8", "replace")


def as_json(value: Any) -> str:
    """
    Write what a client gets; what JSON does not know is written as the ledger does.

    :param value: plain data.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return encode(value).data.decode("utf-8")
