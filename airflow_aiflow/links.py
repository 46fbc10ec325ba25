"""The button on a task's details that leads to its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from airflow_aiflow.ui.routes import HOME_ROUTE, TASK_ROUTE

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: Relative: Airflow's pages resolve it against their own base, under whatever prefix they are served.
INBOX = f"plugin/{HOME_ROUTE}/inbox"


def timeline_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """
    Give the address of a task instance's timeline, relative to Airflow's base.

    :param map_index: -1: the task is not mapped.
    """
    dag, run, task = (quote(part, safe="") for part in (dag_id, run_id, task_id))
    mapped = f"/mapped/{map_index}" if map_index >= 0 else ""
    return f"dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/{TASK_ROUTE}"


class AiflowTimelineLink(BaseOperatorLink):
    """Lead from a task instance to its timeline; Airflow shows it once the try has ended."""

    name = "AI Flow"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """
        Give the address; asked in the task's own process, when the try has ended.

        :param operator: the task.
        :param ti_key: of the task instance.
        """
        return timeline_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)


def with_timeline(operator_class: type[Any]) -> Any:
    """
    Give the extra links of an operator class, and ours.

    :param operator_class: one whose links may be a property, computed from the operator's own arguments.
    :return: what to set as ``operator_extra_links``.
    """
    links = operator_class.operator_extra_links
    if not isinstance(links, property):
        return (*links, AiflowTimelineLink())
    own = links.fget

    def both(self: Any) -> tuple[Any, ...]:
        return (*(own(self) if own else ()), AiflowTimelineLink())

    return property(both)
