"""
``/aiflow/api/v1``: what a clear would do, what is wished of one, and which failed items run once more.

Nothing here clears: Airflow's own API does. A wish is written before it is asked, for the new attempt may start before
its answer is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, Depends, HTTPException

from airflow_aiflow.api.addresses import errors
from airflow_aiflow.api.overview_models import (
    ClearBody,
    ClearModel,
    RetryBody,
    RetryModel,
    WishBody,
    WishModel,
    WishSettledBody,
)
from airflow_aiflow.api.reading import ClearPlan, Reading
from airflow_aiflow.api.rights import SignedIn, check, json_only
from airflow_aiflow.durable.clear_preview import as_json, preview
from airflow_aiflow.durable.identity import UNMAPPED
from airflow_aiflow.durable.run_view import ExecutionView

MISSING = "there is no such run or task, or it is not yours to see"


class ClearRoutes:
    """
    Serve what goes with a clear.

    :param reading: gives what reads; asked at the first request.
    """

    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def router(self) -> APIRouter:
        """Give the routes, to be included into an app."""
        routes = APIRouter(prefix="/api/v1", tags=["clear"], dependencies=[Depends(json_only)])
        deed = errors(403, 404, 413, 415)
        given: tuple[tuple[str, Any, Any], ...] = (
            ("/clear:preview", self.preview, ClearModel),
            ("/clear:wish", self.wish, WishModel),
            ("/clear:wish_settled", self.wish_settled, WishModel),
            ("/batches:retry_failed", self.retry_failed, RetryModel),
        )
        for path, route, model in given:
            routes.add_api_route(path, route, methods=["POST"], response_model=model, responses=deed)
        return routes

    def preview(self, body: ClearBody, user: SignedIn) -> Any:
        """Say what a clear would do: what starts anew, what is paid again, which effects are kept."""
        check(user, "GET", body.dag_id, missing=MISSING)
        plan, views = self._plan(body), self._reading().runs.executions(body.dag_id, body.run_id)
        found = preview(
            plan.instances,
            views,
            downstream=plan.downstream,
            assets=plan.assets,
            wish=None if body.on_clear == "auto" else body.on_clear,
            dag_id=body.dag_id,
        )
        return as_json(found)

    def wish(self, body: WishBody, user: SignedIn) -> WishModel:
        """Wish something of the attempts that a clear will start; it counts for ten minutes unless settled."""
        chosen = self._chosen(body, user)
        self._reading().runs.wish(chosen, body.on_clear)
        return WishModel(executions=len(chosen))

    def wish_settled(self, body: WishSettledBody, user: SignedIn) -> WishModel:
        """Say whether Airflow has taken the clear of which something was wished."""
        chosen = self._chosen(body, user)
        runs = self._reading().runs
        (runs.cleared if body.cleared else runs.withdraw)(chosen)
        return WishModel(executions=len(chosen))

    def retry_failed(self, body: RetryBody, user: SignedIn) -> RetryModel:
        """Mark failed items to run once more; then clear these task instances with the wish `resume`."""
        check(user, "PUT", body.dag_id, missing=MISSING)
        items = self._reading().items
        executions = {
            (execution, pk, generation): None
            for execution, pk, generation, item in items.failed_of_run(body.dag_id, body.run_id)
            if item.state != "at_work"
            and body.task_id in (None, execution.task_id)
            and body.map_index in (None, execution.map_index)
        }
        number = sum(items.retry_items(pk, generation) for _, pk, generation in executions)
        markers: list[tuple[str, int] | str] = [
            execution.task_id if execution.map_index == UNMAPPED else (execution.task_id, execution.map_index)
            for execution, *_ in executions
        ]
        return RetryModel(items=number, task_ids=markers)

    def _chosen(self, body: ClearBody, user: BaseUser) -> Sequence[int]:
        check(user, "PUT", body.dag_id, missing=MISSING)
        chosen = {(one.task_id, one.map_index) for one in self._plan(body).instances}
        views: Sequence[ExecutionView] = self._reading().runs.executions(body.dag_id, body.run_id)
        return [view.execution_pk for view in views if (view.execution.task_id, view.execution.map_index) in chosen]

    def _plan(self, body: ClearBody) -> ClearPlan:
        try:
            return self._reading().airflow.plan(
                body.dag_id,
                body.run_id,
                body.task_ids,
                downstream=body.downstream,
                upstream=body.upstream,
                only_failed=body.only_failed,
            )
        except LookupError as error:
            raise HTTPException(404, MISSING) from error
