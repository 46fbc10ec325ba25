"""How a request names a run, an execution, a step: what is allowed in it, and what is said where it names nothing."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query

from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId

#: Characters of an id of Airflow's.
LONGEST_ID = 250

#: Greatest whole number of the ledger's.
LARGEST = 2**63 - 1

MISSING = "there is no such execution, or it is not yours to see"

_ANY_TEXT = r"^[^\x00]+$"

DagId = Annotated[str, Query(min_length=1, max_length=LONGEST_ID, pattern=_ANY_TEXT, description="The DAG.")]
RunId = Annotated[str, Query(min_length=1, max_length=LONGEST_ID, pattern=_ANY_TEXT, description="The run.")]
TaskId = Annotated[str, Query(min_length=1, max_length=LONGEST_ID, pattern=_ANY_TEXT, description="The task.")]
MapIndex = Annotated[int, Query(ge=UNMAPPED, lt=2**31, description="-1: the task is not mapped.")]
OneDag = Annotated[str | None, Query(min_length=1, max_length=LONGEST_ID, pattern=_ANY_TEXT, description="Of one DAG.")]
OneRun = Annotated[str | None, Query(min_length=1, max_length=LONGEST_ID, pattern=_ANY_TEXT, description="Of one run.")]
StepKey = Annotated[str, Query(pattern=r"^[0-9a-f]{64}$", description="As the timeline gives it.")]
Generation = Annotated[int | None, Query(ge=1, lt=2**31, description="Null: the current one.")]
After = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,18}$", description="What the page before gave as `next`.", examples=["1842"])
]
Limit = Annotated[int, Query(ge=1, le=200, description="Of one page.")]

PROBLEM: dict[str, Any] = {
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """
    Describe what a route may answer beside its own answer.

    :param statuses: beside those that every route has.
    """
    return {status: {"description": _ERRORS[status], **PROBLEM} for status in (401, 422, 503, *statuses)}


_ERRORS = {
    401: "No valid token or cookie.",
    403: "Allowed to read, and no more; or a page of another site asked.",
    404: "Not there, or not yours to see.",
    409: "It does not count: `detail` says what stands instead, by whom and since when.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "Malformed; `errors` points to the parts.",
    503: "The ledger can't be asked now.",
}

#: Of a route that changes something.
DEED = (403, 404, 409, 413, 415)


def execution_of(dag_id: DagId, run_id: RunId, task_id: TaskId, map_index: MapIndex = UNMAPPED) -> ExecutionId:
    """Name an execution."""
    return ExecutionId(dag_id, run_id, task_id, map_index)


Where = Annotated[ExecutionId, Depends(execution_of)]
