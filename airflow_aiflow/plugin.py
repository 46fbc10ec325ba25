"""
The Airflow plugin. Imported by every component and by each task process: nothing heavy may stand at module level.

It lets XCom give back our own classes (plugins are loaded before XCom is read), lets a plain task read an
``ArtifactRef`` that a durable task returned, listens for successes, and gives the API server what it serves for us.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

from airflow_aiflow.hooks import heard

if TYPE_CHECKING:
    from airflow_aiflow.durable.ports import ArtifactStore


def _store() -> ArtifactStore:
    from airflow_aiflow.hooks.aiflow import AiflowHook

    return AiflowHook().artifact_store()


class AiflowPlugin(AirflowPlugin):
    """Register what Airflow must know of this package while it runs."""

    name = "aiflow"
    listeners = [heard]  # noqa: RUF012

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """Give the app that the API server mounts; asked for there alone, since it brings the API server's code."""
        try:
            from airflow_aiflow.api.app import URL_PREFIX, create_app

            return [{"app": create_app(), "url_prefix": URL_PREFIX, "name": "aiflow"}]
        except Exception:  # whatever is wrong with it, Airflow's API server has to start
            logging.getLogger(__name__).exception("aiflow: /aiflow is not served by this API server")
            return []

    @cached_property
    def react_apps(self) -> list[Any]:  # type: ignore[override]
        """Name the pages; asked for in the API server alone, since it reads their files."""
        try:
            from airflow_aiflow.ui.pages import react_apps

            return list(react_apps())
        except Exception:  # as above
            logging.getLogger(__name__).exception("aiflow: this API server shows no pages of ours")
            return []

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Allow our classes in XCom; Airflow calls this in each process that loads plugins."""
        from airflow.sdk.serde import allow_class

        from airflow_aiflow.durable.artifact import ArtifactRef, set_default_store
        from airflow_aiflow.xcom import StoredDict, StoredList, StoredValue

        for one in (StoredValue, StoredList, StoredDict, ArtifactRef):
            allow_class(one)
        set_default_store(_store)
