"""``/aiflow/api/v1/uploads``: large inputs go from the client to the artifact store, past Airflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Depends, HTTPException
from fastapi.concurrency import run_in_threadpool
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from airflow_aiflow.api.addresses import PROBLEM
from airflow_aiflow.api.rights import SignedIn, json_only, require
from airflow_aiflow.api.submission_routes import ERRORS
from airflow_aiflow.durable.upload import NAME_LIMIT, REFERENCE, UploadDesk

#: The largest number that a signed 64-bit integer holds, as the ledger's column does.
LARGEST = 2**63 - 1


class UploadBody(BaseModel):
    """What a client announces."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"pipeline": "answer", "sha256": "0" * 64, "size": 1048577}]},
    )

    pipeline: str = Field(min_length=1, max_length=250, pattern=r"^[\w.-]+$", description="The DAG.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the bytes, in hexadecimal digits.")
    size: int = Field(ge=1, le=LARGEST, description="Bytes.")
    media_type: str | None = Field(default=None, max_length=250)
    name: str | None = Field(
        default=None, min_length=1, max_length=NAME_LIMIT, pattern=r"^[^\x00-\x1f\x7f]+$", description="For people."
    )


class UploadView(BaseModel):
    """Where to put the bytes, and what to write into the input."""

    upload_id: UUID
    method: str = Field(description="How to put the bytes to the address.")
    url: str = Field(description="Works without a log-in until it expires: whoever has it can put something there.")
    expires_at: AwareDatetime
    reference: dict[str, str] = Field(description="Stands in the input for the upload.")
    artifact: dict[str, Any] = Field(description="What the pipeline gets in its place.")


class UploadRoutes:
    """
    Serve uploads.

    :param desk: gives what takes them; ``None``: they are off.
    """

    def __init__(self, desk: Callable[[], UploadDesk | None]) -> None:
        self._desk = desk

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1/uploads", tags=["uploads"], responses=ERRORS)
        refused: dict[int | str, dict[str, Any]] = {
            413: {"description": "The body is too large.", **PROBLEM},
            415: {"description": "The body is no JSON.", **PROBLEM},
            429: {"description": "Too many of yours were announced and not used.", **PROBLEM},
        }
        routes.add_api_route(
            "",
            self.begin,
            methods=["POST"],
            status_code=201,
            response_model=UploadView,
            responses=refused,
            dependencies=[Depends(json_only)],
        )
        return routes

    async def begin(self, body: UploadBody, user: SignedIn) -> UploadView:
        """Announce an upload; its bytes are checked when a submission uses it, and removed where none does in time."""
        missing = f"there is no pipeline {body.pipeline!r}, or it is not yours to see"
        await require(user, "POST", body.pipeline, missing=missing)
        desk = await run_in_threadpool(self._desk)
        if desk is None:
            raise HTTPException(404, "uploads are off in this deployment")
        made = await run_in_threadpool(
            desk.begin,
            str(user.get_id()),
            body.pipeline,
            sha256=bytes.fromhex(body.sha256),
            size=body.size,
            media_type=body.media_type,
            name=body.name,
        )
        if made is None:
            raise HTTPException(
                429, "too many of your uploads were announced and not used: use some", {"Retry-After": "60"}
            )
        upload, url = made
        return UploadView(
            upload_id=upload.upload_id,
            method="PUT",
            url=url,
            expires_at=upload.expires_at,
            reference={REFERENCE: str(upload.upload_id)},
            artifact=desk.reference(upload),
        )
