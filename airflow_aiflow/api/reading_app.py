"""The reading and answering routes, and what they work with in Airflow's API server."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from fastapi import FastAPI

from airflow_aiflow.api.clear_routes import ClearRoutes
from airflow_aiflow.api.execution_routes import ExecutionRoutes
from airflow_aiflow.api.inbox_routes import InboxRoutes
from airflow_aiflow.api.looks import Looks
from airflow_aiflow.api.overview_routes import OverviewRoutes
from airflow_aiflow.api.reading import Reading
from airflow_aiflow.api.word_routes import WordRoutes
from airflow_aiflow.durable.figures import Figures


def include(app: FastAPI, reading: Callable[[], Reading]) -> None:
    """
    Add the routes to an app.

    :param app: the app.
    :param reading: gives what they work with; asked at the first request.
    """
    for routes in (ExecutionRoutes, OverviewRoutes, InboxRoutes, WordRoutes, ClearRoutes):
        app.include_router(routes(reading).router())


@cache
def reading_here(looks: Looks[Figures]) -> Reading:
    """
    Put together what the routes work with, once.

    :param looks: at the figures; shared with the metrics.
    """
    from airflow_aiflow.api.airflow_clear import AirflowClear
    from airflow_aiflow.api.undo_by_hand import ServerHost, undo_by_hand
    from airflow_aiflow.hooks.aiflow import AiflowHook
    from airflow_aiflow.storage.postgres_inbox import PostgresInbox
    from airflow_aiflow.storage.postgres_items import PostgresItems
    from airflow_aiflow.storage.postgres_limits import PostgresLimits
    from airflow_aiflow.storage.postgres_overview import PostgresOverview
    from airflow_aiflow.storage.postgres_runs import PostgresRuns
    from airflow_aiflow.storage.postgres_timeline import PostgresTimeline

    hook = AiflowHook()
    connections = hook.readers()
    return Reading(
        timeline=PostgresTimeline(connections),
        overview=PostgresOverview(connections, hook.cipher()),
        runs=PostgresRuns(connections),
        inbox=PostgresInbox(connections),
        items=PostgresItems(connections),
        limits=PostgresLimits(connections),
        figures=looks,
        cipher=hook.cipher(),
        store=hook.artifact_store,
        airflow=AirflowClear(),
        undo=lambda *word: undo_by_hand(hook.services(ServerHost()), *word),
        seal_key=hook.settings.seal_key,
    )
