"""The button that leads to a task's timeline stands on each operator that has one, beside the operator's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_aiflow.decorators.durable import DurableDecoratedOperator
from airflow_aiflow.decorators.effect import EffectDecoratedOperator
from airflow_aiflow.get_provider_info import get_provider_info
from airflow_aiflow.hooks.asking import INBOX_LINK
from airflow_aiflow.links import INBOX, AiflowTimelineLink, timeline_path, with_timeline
from airflow_aiflow.operators import (
    BatchInferenceOperator,
    DurableAgentOperator,
    DurableLLMOperator,
    EffectOperator,
)
from airflow_aiflow.operators.once import once
from airflow_aiflow.ui.pages import react_apps


class Theirs(BaseOperatorLink):
    """A link of another package."""

    name = "Theirs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return "theirs"


class Linked(BaseOperator):
    """An operator with a link of its own."""

    operator_extra_links = (Theirs(),)

    def execute(self, context: Any) -> None:
        """Do nothing."""


class Computed(Linked):
    """An operator whose links follow from its arguments."""

    @property
    def operator_extra_links(self) -> tuple[BaseOperatorLink, ...]:  # type: ignore[override]
        return (Theirs(), Theirs())


@pytest.mark.parametrize(
    "operator",
    [
        BatchInferenceOperator,
        DurableAgentOperator,
        DurableDecoratedOperator,
        DurableLLMOperator,
        EffectDecoratedOperator,
        EffectOperator,
    ],
)
def test_every_operator_of_ours_has_the_link(operator: Any) -> None:
    assert [link.name for link in operator.operator_extra_links].count("AI Flow") == 1


def test_a_wrapped_operator_keeps_its_own_links() -> None:
    task = once(Linked, key="a/{{ ds }}")(task_id="linked")
    assert [link.name for link in task.operator_extra_links] == ["Theirs", "AI Flow"]


def test_a_computed_list_stays_computed() -> None:
    links = with_timeline(Computed)
    assert isinstance(links, property)
    assert [link.name for link in links.__get__(Computed(task_id="computed"))] == ["Theirs", "Theirs", "AI Flow"]


def test_the_address_is_the_tab_of_the_task_instance() -> None:
    key = SimpleNamespace(dag_id="a b", run_id="scheduled__2026-11-29T18:00:00+00:00", task_id="one", map_index=3)
    link = AiflowTimelineLink().get_link(SimpleNamespace(), ti_key=key)  # type: ignore[arg-type]
    assert link == (
        "dags/a%20b/runs/scheduled__2026-11-29T18%3A00%3A00%2B00%3A00/tasks/one/mapped/3/plugin/aiflow-task"
    )
    assert timeline_path("a", "b", "c") == "dags/a/runs/b/tasks/c/plugin/aiflow-task"
    (route,) = [page["url_route"] for page in react_apps() if page["destination"] == "task_instance"]
    assert link.endswith(f"/{route}")


def test_a_form_leads_to_the_inbox() -> None:
    assert f"({INBOX})" in INBOX_LINK


def test_airflow_can_load_the_link_by_the_name_that_it_is_told() -> None:
    (name,) = get_provider_info()["extra-links"]
    assert name == f"{AiflowTimelineLink.__module__}.{AiflowTimelineLink.__name__}"
