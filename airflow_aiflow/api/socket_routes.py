"""
One WebSocket for many submissions: subscribe and unsubscribe while it is open, each with a cursor of its own.

It runs past the middleware of the app, and a browser opens one for any page: so who asks, and from which page, is
checked here by hand, before it is accepted. What a user may not see is not there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, HTTPException, Request, WebSocket, WebSocketDisconnect
from fastapi.security import HTTPAuthorizationCredentials
from fastapi.security.utils import get_authorization_scheme_param
from starlette.requests import HTTPConnection

from airflow_aiflow.api.event_routes import MOST, as_json
from airflow_aiflow.api.following import LONGEST_SECONDS, EventTold, Following, Quiet
from airflow_aiflow.api.problem import problem
from airflow_aiflow.api.submission_routes import MISSING
from airflow_aiflow.durable.event_cursor import LONGEST, Cursor

log = logging.getLogger(__name__)

#: Characters of a message: a cursor, and little else.
LONGEST_MESSAGE = LONGEST + 1_000

#: Close codes of RFC 6455.
GOING_AWAY, NOT_TEXT, TOO_BIG = 1001, 1003, 1009


class SocketRoutes:
    """
    Serve sockets.

    :param following: follows submissions.
    """

    def __init__(self, following: Following) -> None:
        self._following = following

    def router(self) -> APIRouter:
        """Give the route, to be included into an app."""
        routes = APIRouter(prefix="/api/v1")
        routes.add_api_websocket_route("/ws", self.serve)
        return routes

    async def serve(self, websocket: WebSocket) -> None:
        """Follow what the client asks for, until it goes."""
        try:
            user = await _user(websocket)
        except HTTPException as refused:
            await _deny(websocket, refused)
            return
        await websocket.accept()
        client = _Client(websocket, user, self._following)
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await client.serve()
        except TimeoutError:
            await websocket.close(GOING_AWAY, "come again: whether you may is looked at anew")
        except (WebSocketDisconnect, RuntimeError):
            pass  # it has gone
        finally:
            await client.end()


class _Client:
    """Serve one socket: a task for each subscription, and a lock before the wire."""

    def __init__(self, websocket: WebSocket, user: BaseUser, following: Following) -> None:
        self._websocket = websocket
        self._user = user
        self._following = following
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._wire = asyncio.Lock()

    async def serve(self) -> None:
        while True:
            try:
                text = await self._websocket.receive_text()
            except KeyError:  # bytes
                await self._websocket.close(NOT_TEXT)
                return
            if len(text) > LONGEST_MESSAGE:
                await self._websocket.close(TOO_BIG)
                return
            await self._do(text)

    async def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _do(self, text: str) -> None:
        try:
            message = json.loads(text)
            deed, submission_id = message["op"], UUID(message["submission_id"])
            after = message.get("after") or ""
            Cursor.read(after)  # whether it may be one; the rest of it lies in the ledger
            if deed not in ("subscribe", "unsubscribe"):
                raise ValueError("op is subscribe or unsubscribe")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            await self._refuse(None, 422, f"not understood: {error}")
            return
        former = self._tasks.pop(submission_id, None)
        if former is not None:
            former.cancel()
            await asyncio.gather(former, return_exceptions=True)
        if deed == "unsubscribe":
            await self._say("unsubscribed", {"submission_id": str(submission_id)})
        elif len(self._tasks) >= MOST:
            await self._refuse(submission_id, 429, f"a socket follows {MOST} submissions: unsubscribe, or open another")
        else:
            self._tasks[submission_id] = asyncio.create_task(self._follow(submission_id, after))

    async def _follow(self, submission_id: UUID, after: str) -> None:
        try:
            found = await self._following.found([submission_id], self._user)
            cursor = await self._following.cursor(after)
            async for told in self._following.told(found, cursor, self._user):
                if isinstance(told, EventTold):
                    await self._say("event", told.plain | {"cursor": told.cursor})
                elif not isinstance(told, Quiet):  # the protocol has its own sign of life
                    await self._say("state", told.plain)
            await self._say("over", {"submission_id": str(submission_id)})
        except LookupError:
            await self._refuse(submission_id, 404, MISSING)
        except ValueError as error:
            await self._refuse(submission_id, 422, str(error))
        except (WebSocketDisconnect, RuntimeError):
            return  # it has gone
        except Exception as error:  # the ledger may be away; the client subscribes anew, behind what it saw
            log.warning("aiflow: submission %s can't be followed now: %s", submission_id, error)
            await self._refuse(submission_id, 503, "can't be followed now: subscribe again, after the last cursor")
        finally:
            if self._tasks.get(submission_id) is asyncio.current_task():
                del self._tasks[submission_id]

    async def _refuse(self, submission_id: UUID | None, status: int, detail: str) -> None:
        named = {} if submission_id is None else {"submission_id": str(submission_id)}
        await self._say("error", named | {"status": status, "detail": detail})

    async def _say(self, kind: str, value: dict[str, Any]) -> None:
        text = as_json({"type": kind} | value).encode("utf-8", "replace").decode()
        async with self._wire:
            await self._websocket.send_text(text)


async def _user(websocket: WebSocket) -> BaseUser:
    """
    Give the user behind a handshake: by a bearer token, or by the cookie where the page is this site's own.

    :raises HTTPException: 401 without valid credentials, 403 for another site's page.
    """
    scheme, credentials = get_authorization_scheme_param(websocket.headers.get("Authorization"))
    bearer = credentials if scheme.lower() == "bearer" else ""
    given = HTTPAuthorizationCredentials(scheme=scheme, credentials=credentials) if bearer else None
    if given is None and not own_page(websocket):
        raise HTTPException(403, "a socket by cookie has to come from this site's own pages")
    try:
        return await get_user(cast("Request", websocket), None, given)
    except HTTPException as refused:
        raise HTTPException(401, "Not authenticated") from refused


def own_page(connection: HTTPConnection) -> bool:
    """
    Say whether a page of this very site asks; browsers tell it, and no page can tell otherwise.

    :param connection: a handshake.
    """
    origin = connection.headers.get("Origin")
    return origin is not None and urlsplit(origin).netloc == connection.headers.get("Host")


async def _deny(websocket: WebSocket, refused: HTTPException) -> None:
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        await websocket.send_denial_response(problem(refused.status_code, str(refused.detail)))
    else:
        await websocket.close(1008)
