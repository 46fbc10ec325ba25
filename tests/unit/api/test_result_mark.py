"""Which task gives the result, from Airflow's own serialised DAG: the DAG processor's policy carries the mark there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from airflow import settings
from airflow.sdk import dag, result, task
from airflow.serialization.serialized_objects import DagSerialization

from airflow_aiflow import policy
from airflow_aiflow.api.airflow_runs import result_task
from airflow_aiflow.exceptions import SubmissionRefusedError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def policies() -> Any:
    """Let the policy be known as its entry point makes it known, whether or not that is installed."""
    known = settings.get_policy_plugin_manager()
    ours = not known.is_registered(policy)
    if ours:
        known.register(policy)
    yield known
    if ours:
        known.unregister(policy)


def two_ends(*marks: str, mapped: bool = False) -> Any:
    @dag(schedule=None)
    def ends() -> None:
        def plain(number: int = 0) -> int:
            return number

        for name in ("first", "second", "third"):
            made = task(task_id=name)(plain)
            made = result(made) if name in marks else made
            if mapped:
                made.expand(number=[1, 2])
            else:
                made(1)

    return ends()


def as_the_server_has_it(made: Any) -> Any:
    """Go the DAG processor's way: policies, then the JSON that is checked, stored and read."""
    policies: Any = settings
    policies.dag_policy(made)
    for each in made.tasks:
        policies.task_policy(each)
    written = DagSerialization.to_dict(made)
    DagSerialization.validate_schema(written)
    return DagSerialization.from_dict(written)


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("mapped", [False, True])
def test_the_marked_task_of_several_ends_gives_the_result(mapped: bool) -> None:
    assert result_task(as_the_server_has_it(two_ends("second", mapped=mapped))) == "second"


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("marks", [(), ("first", "second")])
def test_no_mark_or_several_are_refused(marks: tuple[str, ...]) -> None:
    with pytest.raises(
        SubmissionRefusedError, match=f"has {len(marks) or 3} tasks that may give the result"
    ) as refused:
        result_task(as_the_server_has_it(two_ends(*marks)))
    assert refused.value.pointer == "/pipeline"


def test_where_the_policy_was_not_there_a_mark_is_not_known() -> None:
    written = DagSerialization.to_dict(two_ends("second"))
    with pytest.raises(SubmissionRefusedError, match="mark one by Airflow's @result"):
        result_task(DagSerialization.from_dict(written))


@pytest.mark.usefixtures("policies")
def test_the_mark_is_no_edge_of_the_graph() -> None:
    from airflow.utils.dag_edges import dag_edges

    assert dag_edges(as_the_server_has_it(two_ends("second"))) == dag_edges(two_ends())
    assert ":" in policy.RESULT_EDGE, "no task can be called that"


def test_a_dag_that_the_policy_does_not_understand_stays_a_dag(caplog: pytest.LogCaptureFixture) -> None:
    policy.dag_policy(object())
    assert "won't know which task" in caplog.text


def test_airflow_finds_the_policy_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["airflow.policy"] == {"aiflow": policy.__name__}
