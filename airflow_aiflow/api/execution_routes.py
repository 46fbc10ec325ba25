"""``/aiflow/api/v1``: runs, timelines, units of maps, steps, artifacts, comparisons. They read, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from airflow_aiflow.api.addresses import (
    MISSING,
    DagId,
    Generation,
    OneRun,
    RunId,
    StepKey,
    Where,
    errors,
)
from airflow_aiflow.api.argument_views import names_artifact
from airflow_aiflow.api.artifact_body import artifact_response
from airflow_aiflow.api.comparing import Comparing
from airflow_aiflow.api.execution_models import DiffModel, RunModel, StepModel, TimelineModel, UnitsModel
from airflow_aiflow.api.execution_views import run_model, timeline_model, unit_models
from airflow_aiflow.api.reading import Reading
from airflow_aiflow.api.rights import Sight, SignedIn, check
from airflow_aiflow.api.step_views import step_model
from airflow_aiflow.durable.identity import UNMAPPED, ExecutionId
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.durable.run_view import ExecutionView

#: What a user without the right to results is told.
NO_RESULTS = "you may see how it stands, and not its results"

#: Longest name of a map.
LONGEST_NAME = 1_000


class ExecutionRoutes:
    """
    Serve executions.

    :param reading: gives what reads; asked at the first request.
    """

    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1", tags=["executions"])
        read = errors(404)
        routes.add_api_route("/executions", self.run, methods=["GET"], response_model=RunModel, responses=read)
        routes.add_api_route("/timeline", self.timeline, methods=["GET"], response_model=TimelineModel, responses=read)
        routes.add_api_route("/units", self.units, methods=["GET"], response_model=UnitsModel, responses=read)
        routes.add_api_route("/step", self.step, methods=["GET"], response_model=StepModel, responses=read)
        routes.add_api_route("/diff", self.diff, methods=["GET"], response_model=DiffModel, responses=read)
        content: dict[int | str, dict[str, Any]] = {
            200: {"description": "Its bytes.", "content": {"application/octet-stream": {"schema": {"type": "string"}}}}
        }
        routes.add_api_route(
            "/artifacts/{sha256}",
            self.artifact,
            methods=["GET"],
            response_class=Response,
            responses=errors(403, 404) | content,
        )
        return routes

    def run(self, dag_id: DagId, run_id: RunId, user: SignedIn) -> RunModel:
        """List the executions of a run, with their sums."""
        check(user, "GET", dag_id, missing="there is no such run, or it is not yours to see")
        return run_model(dag_id, run_id, self._reading().timeline.executions(dag_id, run_id))

    def timeline(self, where: Where, user: SignedIn, generation: Generation = None) -> TimelineModel:
        """Give an execution's life: attempts, generations, steps, maps, effects."""
        check(user, "GET", where.dag_id, missing=MISSING)
        found = self._reading().timeline.timeline(where, generation)
        if found is None:
            raise HTTPException(404, MISSING)
        return timeline_model(found)

    def units(
        self,
        where: Where,
        user: SignedIn,
        map: Annotated[
            str, Query(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\x00]+$", description="Its name.")
        ],
        generation: Generation = None,
        after: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$", description="`next` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    ) -> UnitsModel:
        """List the units of a map: items, and steps inside of them."""
        reading, view = self._found(where, user)
        chosen = generation or view.generation
        page = reading.timeline.units(view.execution_pk, chosen, map, after=bytes.fromhex(after or ""), limit=limit)
        items = unit_models(page, reading.timeline.attempts(view.execution_pk), reading.cipher)
        return UnitsModel(items=items, next=page.rows[-1].key.hex() if page.more else None)

    def step(self, where: Where, user: SignedIn, key: StepKey, generation: Generation = None) -> StepModel:
        """Give a recorded step, with its result."""
        reading, view = self._found(where, user)
        sheet = reading.timeline.step(view, generation or view.generation, bytes.fromhex(key))
        if sheet is None:
            raise HTTPException(404, "no such step is recorded in this generation")
        return step_model(
            sheet,
            reading.timeline.told(sheet),
            execution=where,
            last_fence=reading.timeline.attempts(view.execution_pk)[-1].fence,
            cipher=reading.cipher,
            seal_key=reading.seal_key,
            results=Sight(user).results(where.dag_id),
        )

    def artifact(
        self,
        sha256: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")],
        where: Where,
        user: SignedIn,
        request: Request,
        key: Annotated[
            str | None, Query(pattern=r"^[0-9a-f]{64}$", description="The step that gave or was given it.")
        ] = None,
        generation: Generation = None,
    ) -> Response:
        """Give a recorded result's bytes, or those of a file that a step's result or an argument of it names."""
        reading, view = self._found(where, user)
        if not Sight(user).results(where.dag_id):
            raise HTTPException(403, NO_RESULTS)
        step: StepRecord | None = None
        if key is not None:
            chosen = generation or view.generation
            step = next(iter(reading.timeline.records(view.execution_pk, chosen, [bytes.fromhex(key)])), None)
        recorded = reading.timeline.has_artifact(view.execution_pk, bytes.fromhex(sha256))
        found = artifact_response(
            bytes.fromhex(sha256),
            recorded=recorded,
            step=None if step is None else step.result,
            given=step is not None and names_artifact(step, sha256, reading.cipher),
            store=reading.store,
            cipher=reading.cipher,
            headers=request.headers,
        )
        if found is None:
            raise HTTPException(404, "this execution has recorded no such artifact")
        return found

    def diff(
        self,
        dag_id: DagId,
        user: SignedIn,
        run_id: OneRun = None,
        task_id: Annotated[str | None, Query(min_length=1, max_length=250, pattern=r"^[^\x00]+$")] = None,
        map_index: Annotated[int, Query(ge=UNMAPPED, lt=2**31)] = UNMAPPED,
        generation_a: Generation = None,
        generation_b: Generation = None,
        run_a: OneRun = None,
        run_b: OneRun = None,
    ) -> DiffModel:
        """
        Compare, step by step.

        Two generations of an execution (`run_id`, `task_id`, `generation_a`, `generation_b`), or two runs of a DAG
        (`run_a`, `run_b`), of one task of it where `task_id` is given.
        """
        check(user, "GET", dag_id, missing=MISSING)
        reading = self._reading()
        comparing = Comparing(reading.timeline, reading.cipher, results=Sight(user).results(dag_id))
        if run_a is not None and run_b is not None:
            return comparing.runs(dag_id, run_a, run_b, task_id, map_index)
        if run_id is None or task_id is None or generation_a is None or generation_b is None:
            raise HTTPException(
                422, "give run_a and run_b, or run_id, task_id, generation_a and generation_b of one execution"
            )
        view = reading.timeline.find(ExecutionId(dag_id, run_id, task_id, map_index))
        if view is None or max(generation_a, generation_b) > view.generation:
            raise HTTPException(404, MISSING)
        return comparing.generations(view.execution_pk, generation_a, generation_b)

    def _found(self, where: ExecutionId, user: BaseUser) -> tuple[Reading, ExecutionView]:
        check(user, "GET", where.dag_id, missing=MISSING)
        reading = self._reading()
        view = reading.timeline.find(where)
        if view is None:
            raise HTTPException(404, MISSING)
        return reading, view
