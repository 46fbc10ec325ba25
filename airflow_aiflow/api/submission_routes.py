"""
``/aiflow/api/v1/submissions``: hand work in, go away, come back.

The answer to a submit is sent once the outbox row is on disk; the run is made right after it, by the same server, or by
recovery where that server dies.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import ceil
from typing import Annotated, Any
from uuid import UUID

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from fastapi import APIRouter, BackgroundTasks, Depends, Header, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime

from airflow_aiflow.api.addresses import PROBLEM
from airflow_aiflow.api.own_threads import OwnThreads
from airflow_aiflow.api.problem import problem
from airflow_aiflow.api.ranged_body import is_known
from airflow_aiflow.api.result_body import ResultDesk
from airflow_aiflow.api.rights import SignedIn, json_only, may, readable, require
from airflow_aiflow.api.submission_models import (
    StepLine,
    StepList,
    SubmissionBody,
    SubmissionPage,
    SubmissionView,
    view_of,
)
from airflow_aiflow.durable.artifact_parts import PartialReads
from airflow_aiflow.durable.pace import TooFastError
from airflow_aiflow.durable.submission import KEY_LIMIT, Filter, Submission, SubmissionRequest, SubmissionState
from airflow_aiflow.durable.submitting import IllegalMoveError, KeyInUseError, Standing, SubmissionService
from airflow_aiflow.durable.upload import REFERENCE, UploadDesk
from airflow_aiflow.exceptions import ArtifactMissingError, ArtifactUnavailableError, SubmissionRefusedError

#: Seconds after which a client should ask again, by how often it has asked: doubled, and then this.
ASK_AGAIN = (1, 2, 4, 8, 10)

#: Longest long poll, in seconds: proxies close silent connections after a minute or half of one.
LONGEST_WAIT = 25.0

#: Seconds between two looks during a long poll.
LOOK_SECONDS = 0.5

#: Submissions of one page.
LONGEST_PAGE = 100

#: Submits at once that take uploads in, and that wait for it: each holds one piece in memory, and its bytes on disk.
TAKING_IN = OwnThreads("submits with uploads", 4, waiting=64)

#: Steps of one list.
MOST_STEPS = 1000

MISSING = "there is no such submission, or it is not yours to see"

#: What the routes may answer beside their own answers.
ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"description": "No valid token or cookie.", **PROBLEM},
    403: {"description": "Allowed to read, and no more.", **PROBLEM},
    404: {"description": "Not there, or not yours to see.", **PROBLEM},
    422: {"description": "Malformed; `errors` points to the parts.", **PROBLEM},
    503: {"description": "The ledger can't be asked now.", **PROBLEM},
}


#: What the route of results answers: JSON, or a file as its pipeline has saved it.
RESULT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The result, whole. `ETag` is the SHA-256 of its bytes.",
        "content": {
            "application/json": {"schema": {}, "example": {"answer": "On the third of each month."}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
    206: {
        "description": "The part that was asked for by `Range`.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "It is what `If-None-Match` names."},
    410: {"description": "Its run was deleted, or what it saved is gone.", **PROBLEM},
    416: {"description": "Nothing of it lies in that `Range`.", **PROBLEM},
}


def _base(request: Request) -> str:
    return f"{request.scope.get('root_path', '')}/api/v1"


def no_store() -> PartialReads:
    """
    Have no artifact store.

    :raises ArtifactUnavailableError: always.
    """
    raise ArtifactUnavailableError("this server has no artifact store")


class SubmissionRoutes:
    """
    Serve submissions.

    :param service: gives what takes them; asked at the first request.
    :param wait: waits some seconds.
    :param desk: gives what takes uploads; ``None``: they are off.
    :param store: gives the artifact store.
    """

    def __init__(
        self,
        service: Callable[[], SubmissionService],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        desk: Callable[[], UploadDesk | None] = lambda: None,
        store: Callable[[], PartialReads] = no_store,
    ) -> None:
        self._service = service
        self._wait = wait
        self._desk = desk
        self._results = ResultDesk(store)

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1/submissions", tags=["submissions"], responses=ERRORS)
        in_use, ended = _conflict("The key is another task's."), _conflict("It is not in a state for that.")
        one = "/{submission_id}"
        routes.add_api_route(
            "",
            self.submit,
            methods=["POST"],
            status_code=202,
            response_model=SubmissionView,
            responses=in_use
            | {413: {"description": "The body is too large.", **PROBLEM}}
            | {415: {"description": "The body is no JSON.", **PROBLEM}}
            | {429: {"description": "You hand in too fast; `Retry-After` says when to.", **PROBLEM}},
            dependencies=[Depends(json_only)],
        )
        routes.add_api_route("", self.listed, methods=["GET"], response_model=SubmissionPage)
        routes.add_api_route(one, self.shown, methods=["GET"], response_model=SubmissionView)
        routes.add_api_route(f"{one}/result", self.result, methods=["GET"], responses=ended | RESULT)
        routes.add_api_route(f"{one}/steps", self.steps, methods=["GET"], response_model=StepList)
        moves = {"cancel": self.cancel, "pause": self.pause, "resume": self.resume, "retry": self.retry}
        for word, move in moves.items():
            routes.add_api_route(
                f"{one}:{word}", move, methods=["POST"], response_model=SubmissionView, responses=ended
            )
        return routes

    async def submit(
        self,
        body: SubmissionBody,
        user: SignedIn,
        request: Request,
        after: BackgroundTasks,
        idempotency_key: Annotated[str | None, Header(max_length=KEY_LIMIT)] = None,
    ) -> Response:
        """Hand in a task. The same key and input find the task that is there: 200 and how it stands."""
        missing = f"there is no pipeline {body.pipeline!r}, or it is not yours to see"
        key = _one_key(body.idempotency_key, idempotency_key)
        await require(user, "POST", body.pipeline, missing=missing)
        try:
            one, new = await self._submitted(_wanted(body, str(user.get_id()), key))
        except LookupError as error:
            raise HTTPException(404, missing) from error
        except KeyInUseError as error:
            return problem(
                409,
                str(error),
                submission_id=str(error.submission.submission_id),
                fingerprint=error.submission.fingerprint.hex(),
                given=error.given.hex(),
            )
        except TooFastError as error:
            return problem(429, str(error), {"Retry-After": str(ceil(error.retry_after) or 1)})
        if not one.made and not one.state.finished:
            after.add_task(self._service().try_make, one)
        standing = Standing(one) if new else await run_in_threadpool(self._service().standing, one)
        return _answer(request, standing, 202 if new else 200, after)

    async def _submitted(self, wanted: SubmissionRequest) -> tuple[Submission, bool]:
        if REFERENCE not in str(wanted.input):
            return await run_in_threadpool(self._service().submit, wanted)
        # What was put is read and stored again, which for gigabytes takes minutes: that holds up nobody else.
        return await TAKING_IN.run(self._with_uploads, wanted)

    def _with_uploads(self, wanted: SubmissionRequest) -> tuple[Submission, bool]:
        desk = self._desk()
        if desk is None:
            raise SubmissionRefusedError("uploads are off in this deployment", "/input")
        given, uploads = desk.resolve(wanted.user, wanted.pipeline, wanted.input)

        def taken_in() -> None:
            for upload in uploads:
                desk.take_in(upload)

        return self._service().submit(replace(wanted, input=given), taken_in)

    async def listed(
        self,
        user: SignedIn,
        request: Request,
        pipeline: Annotated[str | None, Query(max_length=250)] = None,
        state: SubmissionState | None = None,
        label: Annotated[
            str | None, Query(description="name:value", pattern=r"^[^:\x00]+:[^\x00]*$", max_length=201)
        ] = None,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
        mine: bool = False,
        cursor: UUID | None = None,
        limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 50,
    ) -> Any:
        """List submissions of the pipelines that you may read, the newest first."""
        allowed = await run_in_threadpool(readable, user)
        name, _, value = (label or "").partition(":")
        wanted = Filter(
            users=(str(user.get_id()),) if mine else None,
            pipelines=tuple(one for one in allowed if pipeline in (None, one)),
            state=state,
            label=(name, value) if label else None,
            since=since,
            until=until,
            after=cursor,
            limit=limit,
        )
        page = await run_in_threadpool(self._service().page, wanted)
        following = None
        if len(page) == limit:
            following = request.url.include_query_params(cursor=str(page[-1].submission.submission_id)).query
        # To see a DAG is less than to see its runs.
        names = {each.submission.pipeline for each in page}
        seen = {name for name in names if await run_in_threadpool(may, user, "GET", name)}
        return {
            "submissions": [view_of(each, _base(request)) for each in page if each.submission.pipeline in seen],
            "next": None if following is None else f"{_base(request)}/submissions?{following}",
        }

    async def shown(
        self,
        submission_id: UUID,
        user: SignedIn,
        request: Request,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change.")] = 0,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Tell how a submission stands; with `wait` only once it has ended, or with the last ETag has changed."""
        one = await self._found(user, submission_id)
        waited = 0.0
        while True:
            standing = await run_in_threadpool(self._service().standing, one)
            one = standing.submission
            answer = _answer(request, standing, 200)
            same = is_known(answer.headers["ETag"], if_none_match)
            news = one.state.finished if if_none_match is None else not same
            if news or waited >= wait or await request.is_disconnected():
                break
            await self._wait(LOOK_SECONDS)
            waited += LOOK_SECONDS
        if same:
            kept = {name: answer.headers[name] for name in ("ETag", "Retry-After", "Cache-Control")}
            return Response(status_code=304, headers=kept)
        return answer

    async def result(
        self,
        submission_id: UUID,
        user: SignedIn,
        request: Request,
        range: Annotated[str | None, Header()] = None,
        if_range: Annotated[str | None, Header()] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Give what the pipeline's result task returned: JSON, or a saved file's own bytes; a large one is streamed."""
        one = await self._found(user, submission_id)
        if not await run_in_threadpool(may, user, "GET", one.pipeline, DagAccessEntity.XCOM):
            raise HTTPException(403, "you may see how it stands, and not its results")
        one = (await run_in_threadpool(self._service().standing, one)).submission
        if one.state is not SubmissionState.SUCCEEDED:
            again = {} if one.state.finished else {"Retry-After": str(_again(request))}
            return problem(409, f"it is {one.state.value}", again, state=one.state.value)
        try:
            value = await run_in_threadpool(self._service().result, one)
            given = {"range": range, "if-range": if_range, "if-none-match": if_none_match}
            return await self._results.answer(value, {name: text for name, text in given.items() if text is not None})
        except (LookupError, ArtifactMissingError) as error:
            return problem(410, f"there is no result: {error}", state=one.state.value)

    async def steps(
        self, submission_id: UUID, user: SignedIn, limit: Annotated[int, Query(ge=1, le=MOST_STEPS)] = 200
    ) -> Any:
        """List what its tasks have recorded, task by task in the order of recording; results are not among it."""
        one = await self._found(user, submission_id)
        found = await run_in_threadpool(self._service().steps, one, limit=limit + 1)
        return {"steps": [StepLine.model_validate(each) for each in found[:limit]], "truncated": len(found) > limit}

    async def cancel(self, submission_id: UUID, user: SignedIn, request: Request) -> Response:
        """End it between two steps; asked twice it is done once. What has an outcome keeps it."""
        return await self._moved(submission_id, user, request, self._service().cancel)

    async def pause(self, submission_id: UUID, user: SignedIn, request: Request) -> Response:
        """Let nothing more of it start; what is at work parks at its next step. Asked twice it is done once."""
        return await self._moved(submission_id, user, request, self._service().pause)

    async def resume(self, submission_id: UUID, user: SignedIn, request: Request) -> Response:
        """Let it go on where it was paused. Asked twice it is done once."""
        return await self._moved(submission_id, user, request, self._service().resume)

    async def retry(self, submission_id: UUID, user: SignedIn, request: Request) -> Response:
        """Run a finished one again: what is recorded replays. Asked again while that runs it is done once."""
        return await self._moved(submission_id, user, request, self._service().retry)

    async def _moved(
        self, submission_id: UUID, user: BaseUser, request: Request, move: Callable[[Submission], None]
    ) -> Response:
        one = await self._found(user, submission_id)
        await require(user, "PUT", one.pipeline, missing=MISSING)
        one = (await run_in_threadpool(self._service().standing, one)).submission
        try:
            await run_in_threadpool(move, one)
        except IllegalMoveError as error:
            return problem(409, str(error), state=one.state.value)
        return _answer(request, await run_in_threadpool(self._service().standing, one), 200)

    async def _found(self, user: BaseUser, submission_id: UUID) -> Submission:
        one = await run_in_threadpool(self._service().get, submission_id)
        if one is None or not await run_in_threadpool(may, user, "GET", one.pipeline):
            raise HTTPException(404, MISSING)
        return one


def _conflict(what: str) -> dict[int | str, dict[str, Any]]:
    return {409: {"description": what, **PROBLEM}}


def _one_key(in_body: str | None, in_header: str | None) -> str:
    if in_body and in_header and in_body != in_header:
        raise HTTPException(422, "idempotency_key and the header Idempotency-Key differ")
    key = in_body or in_header
    if key is None:
        raise HTTPException(422, "give idempotency_key, or the header Idempotency-Key: a repeat finds its task by it")
    return key


def _wanted(body: SubmissionBody, user: str, key: str) -> SubmissionRequest:
    return SubmissionRequest(
        user=user,
        pipeline=body.pipeline,
        input=body.input,
        key=key,
        labels=body.labels,
        priority=body.priority,
        deadline=body.deadline,
        callback_url=body.callback_url,
    )


def _answer(request: Request, standing: Standing, status: int, after: BackgroundTasks | None = None) -> JSONResponse:
    view = view_of(standing, _base(request)).model_dump(mode="json")
    # Time alone changes an estimate: who waits for a change is not told of that.
    steady = view | {"progress": view["progress"] and view["progress"] | {"eta_seconds": None}}
    text = json.dumps(steady, sort_keys=True)
    headers = {
        "ETag": f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"',
        "Cache-Control": "no-cache, private",
        "Location": view["links"]["self"],
        "Retry-After": str(_again(request)),
    }
    return JSONResponse(view, status, headers=headers, background=after)


def _again(request: Request) -> int:
    """Say when to ask again: a client tells by ``X-Aiflow-Asked`` how often it has."""
    try:
        asked = int(request.headers.get("X-Aiflow-Asked", "0"))
    except ValueError:
        asked = 0
    return ASK_AGAIN[max(0, min(asked, len(ASK_AGAIN) - 1))]
