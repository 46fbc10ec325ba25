"""The JSON of submissions, both ways."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from airflow_aiflow.durable.progress import RunProgress
from airflow_aiflow.durable.submission import KEY_LIMIT, Submission, SubmissionState
from airflow_aiflow.durable.submitting import Standing


class SubmissionBody(BaseModel):
    """What a client hands in."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"pipeline": "answer", "input": {"question": "What is due?"}}]},
    )

    pipeline: str = Field(min_length=1, max_length=250, pattern=r"^[\w.-]+$", description="The DAG.")
    input: dict[str, Any] = Field(default_factory=dict, description="The DAG's params.")
    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=KEY_LIMIT,
        description="One task for one key. May be given as the header Idempotency-Key; one of both is needed.",
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Names and values to find it by.")
    priority: int = Field(default=0, ge=-1000, le=1000, description="Greater first, where runs wait to be made.")
    deadline: AwareDatetime | None = Field(default=None, description="After which it is cancelled.")
    callback_url: str | None = Field(
        default=None,
        max_length=2000,
        description="Told of the end by a signed POST; only where callbacks are on, to hosts that are listed.",
    )


class SubmissionLinks(BaseModel):
    """Where else to look."""

    self: str
    result: str
    events: str
    run: str


class ProgressView(BaseModel):
    """How far the tasks at work are."""

    done: int | None = Field(description="Units of work, summed over the tasks at work; null: none said anything.")
    total: int | None = Field(description="All of them; null: a task does not know.")
    steps: list[str] = Field(description="Names of the steps in hand.")
    message: str | None
    eta_seconds: float | None = Field(description="At the pace so far; null: too early to say, or unknown.")


class SubmissionView(BaseModel):
    """A submission as it stands."""

    submission_id: UUID
    pipeline: str
    state: SubmissionState
    pause_reason: str | None = None
    waits_for: list[int] = Field(default=[], description="Numbers in the in-doubt inbox that wait for a person.")
    idempotency_key: str
    labels: dict[str, str]
    created_at: datetime
    finished_at: datetime | None
    cancelling: bool = Field(default=False, description="It was cancelled, and what is at work comes to its end.")
    pausing: bool = Field(default=False, description="It is held: nothing more of it starts.")
    run_id: str
    attempts: int | None = Field(description="Attempts of its durable tasks so far; null, as in a list: not counted.")
    steps: int | None = Field(description="Recorded steps of its current generations, or null likewise.")
    calls: int | None = Field(description="Model calls among them.")
    cost: Decimal | None = Field(description="Of those calls whose price is known, in US dollars.")
    progress: ProgressView | None = Field(default=None, description="Null, as in a list: no durable task is at work.")
    error: str | None = Field(default=None, description="Why no run could be made.")
    links: SubmissionLinks


class StepLine(BaseModel):
    """A recorded step, without its result."""

    model_config = ConfigDict(from_attributes=True)

    task_id: str
    map_index: int = Field(description="-1: the task is not mapped.")
    kind: str
    name: str
    depth: int = Field(description="How many units it lies within: 0, the task's own body.")
    attempt: int = Field(description="Running number of the attempt that recorded it.")
    ended_at: datetime
    duration_ms: float
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None = Field(description="In US dollars; null: no model call, or its price is not known.")
    size: int | None = Field(description="Bytes of its result in the ledger; null: it is an artifact.")


class StepList(BaseModel):
    """What a submission's tasks have recorded in their current generations."""

    steps: list[StepLine]
    truncated: bool = Field(description="There are more than were asked for.")


class SubmissionPage(BaseModel):
    """One page, the newest first."""

    submissions: list[SubmissionView]
    next: str | None = Field(description="The next page; null: this is the last one.")


def view_of(standing: Standing, base: str) -> SubmissionView:
    """
    Show a submission.

    :param standing: as it stands.
    :param base: the path of the API, up to its version.
    """
    one = standing.submission
    own = f"{base}/submissions/{one.submission_id}"
    return SubmissionView(
        submission_id=one.submission_id,
        pipeline=one.pipeline,
        state=one.state,
        pause_reason=standing.pause_reason,
        waits_for=list(standing.waits_for),
        idempotency_key=one.key,
        labels=dict(one.labels),
        created_at=one.created_at,
        finished_at=one.finished_at,
        cancelling=one.cancel_asked and not one.state.finished,
        pausing=one.hold_asked and not one.state.finished,
        run_id=one.run_id,
        attempts=standing.attempts,
        steps=standing.steps,
        calls=standing.calls,
        cost=standing.cost,
        progress=_progress(standing.progress),
        error=one.refused,
        links=SubmissionLinks(self=own, result=f"{own}/result", events=f"{own}/events", run=_run_page(one)),
    )


def _progress(told: RunProgress | None) -> ProgressView | None:
    if told is None:
        return None
    eta = None if told.eta_seconds is None else round(told.eta_seconds, 1)
    return ProgressView(done=told.done, total=told.total, steps=list(told.steps), message=told.message, eta_seconds=eta)


def _run_page(one: Submission) -> str:
    return f"/dags/{one.pipeline}/runs/{one.run_id}"
