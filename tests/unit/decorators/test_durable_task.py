"""What a DAG file may write, and what it must see while it is parsed. Nothing runs here."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from airflow.sdk import DAG, result, setup, task, teardown
from airflow.serialization.serialized_objects import DagSerialization

from airflow_aiflow.decorators.durable import DurableDecoratedOperator, DurableTask
from airflow_aiflow.decorators.options import TaskOptions
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.exceptions import FlowOptionError


@pytest.fixture(name="dag")
def _dag() -> Any:
    with DAG("parsed", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
        yield dag


def operator(arg: Any) -> DurableDecoratedOperator:
    found: DurableDecoratedOperator = arg.operator
    return found


def test_the_provider_registers_the_decorator(dag: DAG) -> None:
    @task.durable
    def review(flow: Any, doc: str) -> str:
        """Review a document."""
        return doc

    assert isinstance(review, DurableTask)
    made = operator(review("a.pdf"))
    assert made.task_id == "review"
    assert made.custom_operator_name == "@task.durable"
    assert made.doc_md == "Review a document."
    assert made.show_return_value_in_logs is False


def test_options_go_to_the_task_and_the_rest_to_airflow(dag: DAG) -> None:
    @task.durable(
        retries=3,
        on_clear="fresh",
        step_timeout=dt.timedelta(minutes=1),
        lease=60,
        share_mapped=False,
        recovery="careful",
        max_recoveries=2,
    )
    def review(flow: Any) -> None: ...

    made = operator(review())  # type: ignore[call-arg]
    assert made.retries == 3
    assert made.durable_options == TaskOptions(
        "fresh", 60.0, LeaseRules(60.0, 20.0), False, recovery="careful", max_recoveries=2
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_clear": "sometimes"}, "on_clear must be 'auto', 'resume' or 'fresh', got 'sometimes'"),
        ({"step_timeout": 0}, "step_timeout must be a timedelta or a number of seconds above 0, got 0"),
        ({"step_timeout": "1m"}, "step_timeout must be"),
        ({"lease": -1}, "lease must be"),
        ({"share_mapped": "no"}, "share_mapped must be True or False, got 'no'"),
        ({"max_recoveries": -1}, "max_recoveries must be a whole number from 0, got -1"),
        ({"recovery": "never"}, "recovery must be 'auto', 'rerun', 'resume', 'careful' or 'off'"),
        ({"compensate_on_failure": "yes"}, "compensate_on_failure must be True or False, got .yes."),
        ({"budget": "25 apples"}, "budget must be 5 or .* got .25 apples."),
        ({"labels": ["legal"]}, "labels must be a dict of short texts, such as ..team.: .legal.., got ..legal.."),
        ({"labels": dict.fromkeys(map(str, range(21)), "")}, "labels: at most 20 are kept, got 21"),
        ({"labels": {"": "legal"}}, "labels: a name is a text of 1 to 100 characters without .=., got .."),
        ({"labels": {"a=b": "legal"}}, "labels: a name is a text"),
        ({"labels": {"team": 7}}, "labels: .team. must be a text of at most 100 characters, got 7"),
        ({"labels": {"team": "a" * 101}}, "labels: .team. must be"),
        ({"labels": {"team": "a\0"}}, "labels: .team. must be"),
    ],
)
def test_a_wrong_option_is_told_at_the_decorator(options: dict[str, Any], message: str) -> None:
    def review(flow: Any) -> None: ...

    with pytest.raises(FlowOptionError, match="^" + message.replace("'", ".").replace("[", ".")):
        task.durable(**options)(review)

    @task.durable
    def later(flow: Any) -> None: ...

    with pytest.raises(FlowOptionError):
        later.override(**options)


def test_labels_reach_the_attempt(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen(Exception):
        """End where the options have been handed on."""

    def take(context: Any, **options: Any) -> Any:
        raise Seen(options["labels"])

    @task.durable(labels={"team": "legal"})
    def review(flow: Any) -> None: ...

    monkeypatch.setattr("airflow_aiflow.hooks.context.work_from_context", take)
    with pytest.raises(Seen, match=r"\{'team': 'legal'\}"):
        operator(review()).execute({})  # type: ignore[call-arg]


def test_the_default_arguments_of_the_dag_reach_the_task_and_mapped_tasks() -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with DAG("parsed", schedule=None, start_date=start, default_args={"on_clear": "fresh"}) as dag:

        @task.durable
        def review(flow: Any, doc: str) -> None: ...

        one = operator(review("a.pdf"))  # type: ignore[call-arg]
        review.override(task_id="mapped").expand(doc=["a.pdf", "b.pdf"])
    assert one.durable_options.on_clear == "fresh"
    unmapped: Any = dag.task_dict["mapped"]
    assert unmapped.unmap({"op_kwargs": {"doc": "a.pdf"}}).durable_options.on_clear == "fresh"


def test_a_wrong_default_argument_is_told_too() -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with DAG("parsed", schedule=None, start_date=start, default_args={"on_clear": "perhaps"}):

        @task.durable
        def review(flow: Any) -> None: ...

        with pytest.raises(FlowOptionError, match="got 'perhaps'"):
            review()  # type: ignore[call-arg]


def test_the_flow_is_not_the_authors_to_give(dag: DAG) -> None:
    @task.durable
    def review(flow: Any, a: int) -> None: ...

    @task.durable
    def gather(flow: Any, **more: Any) -> None: ...

    for fn in (review, gather):
        with pytest.raises(FlowOptionError, match=r"'flow' is given by aiflow and can't be mapped"):
            fn.expand(flow=[1], a=[1])
        with pytest.raises(FlowOptionError, match=r"'flow' is given by aiflow and can't be passed"):
            fn.partial(flow=1)
        with pytest.raises(FlowOptionError, match=r"'flow' is given by aiflow and can't be passed"):
            fn(flow=1, a=1)


def test_an_argument_that_is_missing_or_unknown_is_airflows_own_error(dag: DAG) -> None:
    @task.durable
    def review(flow: Any, a: int) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        review()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        review.expand(b=[1])


def test_a_plain_task_that_asks_for_a_flow_fails_while_parsing(dag: DAG) -> None:
    @task
    def review(flow: Any, a: int) -> None: ...

    with pytest.raises(TypeError):
        review(a=1)  # type: ignore[call-arg]


def test_an_async_function_is_a_plain_task_to_airflow(dag: DAG) -> None:
    @task.durable
    async def review(flow: Any, doc: str) -> str:
        return doc

    made = operator(review("a.pdf"))  # type: ignore[call-arg]
    assert made.is_async is False
    assert made.op_args == ("a.pdf",)
    review.expand(doc=["a", "b"])


def test_no_function_no_task() -> None:
    with pytest.raises(FlowOptionError, match="takes a function"):
        task.durable("review")  # type: ignore[call-overload]


def test_it_works_with_airflows_other_words(dag: DAG) -> None:
    @setup
    @task.durable
    def begin(flow: Any) -> None: ...

    @teardown
    @task.durable
    def end(flow: Any) -> None: ...

    @result
    @task.run_if(lambda _context: True)
    @task.durable(map_index_template="{{ doc }}")
    def review(flow: Any, doc: str, params: Any = None, lang: str = "en") -> dict[str, int]: ...  # type: ignore[empty-body]

    begun, ended = operator(begin()), operator(end())
    one = operator(review("a.pdf"))
    mapped = review.override(task_id="many").partial(lang="de").expand(doc=["a.pdf"]).operator
    begun >> [one, mapped] >> ended
    assert begun.is_setup
    assert ended.is_teardown
    assert one.multiple_outputs
    assert one.returns_dag_result
    assert json.dumps(DagSerialization.to_dict(dag))


def test_the_typed_twin_is_the_package_itself(dag: DAG) -> None:
    import airflow_aiflow
    import airflow_aiflow.durable.attempt as attempt
    from airflow_aiflow import durable

    assert airflow_aiflow.durable is durable
    assert attempt.Attempt.__module__ == "airflow_aiflow.durable.attempt"

    @durable
    def bare(flow: Any, doc: str) -> str:
        return doc

    @durable(retries=2)
    def with_options(flow: Any, doc: str) -> str:
        return doc

    assert isinstance(bare, DurableTask)
    assert with_options(doc="a.pdf").operator.retries == 2
