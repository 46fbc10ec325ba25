"""
What Airflow is told of the pages: a name, a place, and where the browser finds the program.

The name is the label that people read **and** the property of the browser's global object under which Airflow looks
the page up; one name in several places is one function, which sees by its properties where it stands. ``url_route`` is
unique over all plugins of a deployment. An unknown ``destination`` would drop the whole plugin from Airflow's UI.
"""

from __future__ import annotations

from airflow_aiflow.ui.program import version
from airflow_aiflow.ui.routes import DAG_ROUTE, HOME_ROUTE, INBOX_ROUTE, RUN_ROUTE, TASK_ROUTE

#: The label: short, since Airflow's row of tabs wraps at 1280 pixels.
NAME = "AI Flow"


def react_apps() -> list[dict[str, str | bool]]:
    """
    List the pages in the form of Airflow's ``react_apps``.

    Addresses are relative: Airflow resolves them against its own base, so that a deployment under a prefix works.
    """
    base = f"aiflow/static/{version()}"

    def page(name: str, route: str, destination: str, **more: str | bool) -> dict[str, str | bool]:
        icons: dict[str, str | bool] = {"icon": f"{base}/icon.svg", "icon_dark_mode": f"{base}/icon_dark.svg"}
        return {
            "name": name,
            "url_route": route,
            "destination": destination,
            "bundle_url": f"{base}/main.js",
            **icons,
            **more,
        }

    return [
        page(NAME, TASK_ROUTE, "task_instance"),
        page(NAME, RUN_ROUTE, "dag_run"),
        page(NAME, DAG_ROUTE, "dag"),
        page(NAME, HOME_ROUTE, "nav", nav_top_level=True),
        page(f"{NAME} inbox", INBOX_ROUTE, "nav", category="browse"),
    ]
