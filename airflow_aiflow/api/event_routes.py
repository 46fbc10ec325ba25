"""
Server-sent events of submissions: ``id:`` is the cursor, by which a client goes on where it was cut off.

A stream ends once its submissions have: the last event tells their states. Comments keep proxies from closing it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any
from uuid import UUID

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, Header, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from airflow_aiflow.api.event_hub import EventHub
from airflow_aiflow.api.rights import SignedIn, may
from airflow_aiflow.api.submission_routes import ERRORS, MISSING
from airflow_aiflow.durable.event_cursor import LONGEST, Cursor, Event
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService

#: Seconds that an event is waited for before states are compared.
LOOK_SECONDS = 1.0

#: Rounds of that without an event after which a comment is sent: proxies close silent connections.
QUIET = 15

#: Least seconds between two looks at states because events came: a busy stream must not ask for each of its events.
STATES_SECONDS = 2.0

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


class EventRoutes:
    """
    Serve streams.

    :param service: gives what knows submissions.
    :param hub: feeds the streams.
    """

    def __init__(self, service: Callable[[], SubmissionService], hub: EventHub) -> None:
        self._service = service
        self._hub = hub

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
        self, submission_id: UUID, user: SignedIn, request: Request, after: After = None, last_event_id: LastId = None
    ) -> StreamingResponse:
        """Follow one submission."""
        return await self._followed([submission_id], user, request, after, last_event_id)

    async def of_many(
        self,
        submission_id: Annotated[list[UUID], Query(min_length=1, max_length=MOST)],
        user: SignedIn,
        request: Request,
        after: After = None,
        last_event_id: LastId = None,
    ) -> StreamingResponse:
        """Follow many on one connection."""
        return await self._followed(list(dict.fromkeys(submission_id)), user, request, after, last_event_id)

    async def _followed(
        self, ids: Sequence[UUID], user: BaseUser, request: Request, after: str | None, last_event_id: str | None
    ) -> StreamingResponse:
        try:
            cursor = Cursor.read(last_event_id or after or "")
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        found = [await run_in_threadpool(self._service().get, each) for each in ids]
        for one in found:
            if one is None or not await run_in_threadpool(may, user, "GET", one.pipeline):
                raise HTTPException(404, MISSING)
        known = [one for one in found if one is not None]
        return StreamingResponse(self._told(known, cursor), media_type="text/event-stream", headers=HEADERS)

    async def _told(self, submissions: Sequence[Submission], cursor: Cursor) -> AsyncIterator[bytes]:
        by_run = {(one.pipeline, one.run_id): one for one in submissions}
        states: dict[UUID, SubmissionState] = {}
        told, quiet = cursor.copy(), QUIET
        words: tuple[str | None, ...] | None = None
        clock, stale, looked = asyncio.get_running_loop().time, False, float("-inf")
        yield b"retry: 2000\n\n"
        async with self._hub.stream(list(by_run), cursor) as stream:
            while True:
                news = await self._hub.news(stream, LOOK_SECONDS)
                for run, event in news:
                    told.pass_(event)
                    yield _event(by_run[run].submission_id, event, str(told))
                stale = stale or bool(news)
                quiet = 0 if news else quiet + 1
                due = stale and clock() - looked >= STATES_SECONDS
                if words == self._hub.words(stream) and quiet < QUIET and not due:
                    continue
                words, stale, looked = self._hub.words(stream), False, clock()
                seen = await self._states(submissions)
                if _over(seen):
                    # What was written before the end is told before it.
                    while news := await self._hub.rest(stream):
                        for run, event in news:
                            told.pass_(event)
                            yield _event(by_run[run].submission_id, event, str(told))
                for submission_id, state in seen.items():
                    if states.get(submission_id) is not state:
                        yield _state(submission_id, state)
                states = seen
                if _over(seen):
                    return
                if quiet >= QUIET:
                    quiet = 0
                    yield b": still here\n\n"

    async def _states(self, submissions: Sequence[Submission]) -> dict[UUID, SubmissionState]:
        found = [await run_in_threadpool(self._service().standing, one) for one in submissions]
        return {each.submission.submission_id: each.submission.state for each in found}


def _over(states: dict[UUID, SubmissionState]) -> bool:
    return all(state.finished for state in states.values())


def _event(submission_id: UUID, event: Event, cursor: str) -> bytes:
    value = {
        "submission_id": str(submission_id),
        "kind": event.kind,
        "task_id": event.task_id,
        "map_index": event.map_index,
        "attempt": event.attempt,
        "at": event.at.isoformat(),
        "data": event.data,
    }
    return _written("event", value, cursor)


def _state(submission_id: UUID, state: SubmissionState) -> bytes:
    # Without an id: a client that comes back gets the state anew.
    return _written("state", {"submission_id": str(submission_id), "state": state.value})


def _written(name: str, value: Any, cursor: str | None = None) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        text = encode(value).data.decode("utf-8")
    head = f"id: {cursor}\n" if cursor else ""
    # JSON holds no line break of its own.
    return f"{head}event: {name}\ndata: {text}\n\n".encode("utf-8", "replace")
