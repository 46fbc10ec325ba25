"""``once`` while a DAG is parsed: what it makes of a class, and what it refuses."""

from __future__ import annotations

import copy
import inspect
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.smtp.operators.smtp import EmailOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator, setup

from airflow_aiflow import once
from airflow_aiflow.exceptions import EffectOptionError
from airflow_aiflow.operators import EffectOperator
from airflow_aiflow.operators.operator_call import MARK, OperatorOutcome
from airflow_aiflow.operators.presets import PRESETS, preset_of
from airflow_aiflow.testing import flow

KEY = "close/{{ ds }}"


def test_the_class_is_the_operators_in_all_that_airflow_reads() -> None:
    made = once(EmailOperator, key=KEY)
    assert issubclass(made, EmailOperator)
    assert (made.__name__, made.__module__) == (EmailOperator.__name__, EmailOperator.__module__)
    assert made.template_fields == EmailOperator.template_fields
    assert inspect.signature(made.__init__) == inspect.signature(EmailOperator.__init__)
    mail = made(task_id="mail", to="a@example.com", subject="s", html_content="h")
    assert (mail.to, mail.task_type) == ("a@example.com", "EmailOperator")
    assert mail.operator_name == "once(EmailOperator)"


def test_it_survives_the_dag_processor() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), default_args={"retries": 4}) as dag:
        trigger = once(TriggerDagRunOperator, key=KEY)(task_id="trigger", trigger_dag_id="other")
        mail = once(EmailOperator, key="m/{{ to }}").partial(task_id="mail", subject="s", html_content="h")
        trigger >> mail.expand(to=["a@example.com"])
    data = DagSerialization.to_dict(dag)
    written = DagSerialization.from_dict(data)
    assert written.get_task("trigger").retries == 4
    assert written.get_task("mail").is_mapped
    own = [link.name for link in TriggerDagRunOperator.operator_extra_links]
    assert [link.name for link in trigger.operator_extra_links] == [*own, "AI Flow"]
    copied: Any = copy.deepcopy(trigger)
    assert copied.once_options is trigger.once_options  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [({}, None), ({"deferrable": True}, 3600.0), ({"execution_timeout": timedelta(hours=3)}, 10800.0)],
)
def test_who_defers_is_not_taken_for_gone_within_the_hour(given: dict[str, Any], seconds: float | None) -> None:
    task: Any = once(HttpOperator, key=KEY, idempotency_header="Idempotency-Key")(task_id="t", endpoint="/x", **given)
    with flow() as opened:
        limit = task._options(opened).get("timeout")
    assert (limit.total_seconds() if isinstance(limit, timedelta) else limit) == seconds


def test_it_works_as_setup() -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        task = once(BashOperator)(task_id="begin", bash_command="true")
        setup(task)
    assert task.is_setup


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: once(print), TypeError, "takes an operator class"),  # type: ignore[type-var,arg-type]
        (lambda: once(EffectOperator, key=KEY), EffectOptionError, "its work is recorded already"),
        (lambda: once(once(BashOperator)), EffectOptionError, "its work is recorded already"),
        (lambda: once(EmailOperator, to="a"), TypeError, "once(EmailOperator, key=...)(to=...)"),  # type: ignore[call-arg]
        (lambda: once(EmailOperator, key=""), EffectOptionError, "key is empty"),
        (lambda: once(EmailOperator, key=7), EffectOptionError, "key must be a str"),  # type: ignore[arg-type]
        (lambda: once(EmailOperator, scope="week"), EffectOptionError, "scope must be"),  # type: ignore[arg-type]
        (lambda: once(EmailOperator, identity=("body",)), EffectOptionError, "identity names 'body'"),
        (lambda: once(EmailOperator, on_in_doubt="retry"), EffectOptionError, "give idempotency_header="),
        (lambda: once(HttpOperator, on_in_doubt="retry"), EffectOptionError, "give idempotency_header="),
        (lambda: once(EmailOperator, idempotency_header="X"), EffectOptionError, "this one has none"),
        (lambda: once(HttpOperator, idempotency_header="a b"), EffectOptionError, "the name of a header"),
        (lambda: once(BashOperator, transactional=True), EffectOptionError, "is for SQLExecuteQueryOperator"),
        (
            lambda: once(SQLExecuteQueryOperator, transactional=True, on_in_doubt="hold"),
            EffectOptionError,
            "on_in_doubt= has no meaning with transactional=True",
        ),
        (
            lambda: once(SQLExecuteQueryOperator, transactional=True, idempotency_header="X"),
            EffectOptionError,
            "idempotency_header= has no meaning",
        ),
    ],
)
def test_what_is_wrong_is_refused_where_the_class_is_made(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        call()


SQL = {"task_id": "t", "conn_id": "erp", "sql": "select 1"}


@pytest.mark.parametrize(
    ("made", "arguments", "says"),
    [
        (
            once(HttpOperator),
            {"task_id": "t", "method": "POST", "deferrable": True},
            "Give once() idempotency_header=",
        ),
        (
            once(HttpOperator, idempotency_header="Idempotency-Key"),
            {"task_id": "t", "pagination_function": print},
            "sends several requests",
        ),
        (once(SQLExecuteQueryOperator, transactional=True), {**SQL, "autocommit": True}, "autocommit=True"),
        (once(SQLExecuteQueryOperator, transactional=True), {**SQL, "conn_id": None}, "needs conn_id="),
        (once(SQLExecuteQueryOperator, transactional=True), {**SQL, "database": "x"}, "leave database="),
    ],
)
def test_what_does_not_fit_is_refused_where_the_task_is_made(
    made: type[BaseOperator], arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(EffectOptionError, match=re.escape(says)):
        made(**arguments)


def test_what_fits_is_taken() -> None:
    once(HttpOperator, idempotency_header="Idempotency-Key")(task_id="a", method="POST", deferrable=True)
    once(HttpOperator)(task_id="b", method="GET", deferrable=True)
    once(TriggerDagRunOperator, on_in_doubt="retry", key=KEY)(task_id="c", trigger_dag_id="d")


def test_a_key_that_is_the_same_in_every_run_warns() -> None:
    with pytest.warns(UserWarning, match="once for ever"):
        once(BashOperator, key="close")(task_id="close", bash_command="true")


@pytest.mark.parametrize("native", [False, True])
def test_a_key_is_text_and_never_a_file(native: bool) -> None:
    """A template field of this operator that ends so is a file's name; its key is not."""
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), render_template_as_native_obj=native):
        mail: Any = once(EmailOperator, key="{{ ds_nodash }}e{{ n }}.html")(
            task_id="mail", to="a@example.com", subject="s", html_content="h"
        )
        order: Any = once(BashOperator, key="{{ n }}E5")(task_id="order", bash_command="true")
    assert mail._rendered_key({"ds_nodash": "20260101", "n": 7}) == "20260101e7.html"
    assert order._rendered_key({"n": 1}) == "1E5"


def test_every_preset_names_fields_that_there_are() -> None:
    for path, preset in PRESETS.items():
        module, _, name = path.rpartition(".")
        found = getattr(pytest.importorskip(module), name) if "amazon" not in path else None
        if found is not None:
            assert set(preset.identity or ()) <= {*found.template_fields, *preset.also}, path
            assert preset_of(type("Sub", (found,), {})) is preset
    assert preset_of(BaseOperator).identity is None


@pytest.mark.parametrize(
    "outcome",
    [
        OperatorOutcome(returned={"a": [1, None]}),
        OperatorOutcome(returned={MARK: 1}),
        OperatorOutcome(returned="x", pushed=[("k", (1, 2))]),
        OperatorOutcome(skipped=True, reason="not today"),
        OperatorOutcome(skipped=True, skips=["below", ("mapped", 3)]),
    ],
)
def test_an_outcome_comes_back_as_it_was(outcome: OperatorOutcome) -> None:
    from airflow_aiflow.durable.payload import decode, encode

    again = OperatorOutcome.read(decode(encode(outcome.packed()).data))
    assert again == outcome
