"""``@task.effect`` while a DAG is parsed, and its key after rendering."""

from __future__ import annotations

import datetime as dt
import json
import warnings
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.serialization.serialized_objects import DagSerialization

from airflow_aiflow.decorators.effect import EffectDecoratedOperator, EffectTask
from airflow_aiflow.decorators.effect_key import checked_key
from airflow_aiflow.exceptions import EffectOptionError, FlowOptionError


@pytest.fixture(name="dag")
def _dag() -> Any:
    with DAG("parsed", schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
        yield dag


def send(to: str, subject: str = "") -> None: ...


def pay(ctx: Any, number: str) -> None: ...


def test_options_are_parted_between_the_effect_and_airflow(dag: DAG) -> None:
    made = task.effect(key="mail/{{ ds }}", retries=7, effect_retries=2, scope="run", identity=("to",))(send)
    assert isinstance(made, EffectTask)
    found: EffectDecoratedOperator = made("a@example.com").operator
    assert found.retries == 7
    assert found.key == "mail/{{ ds }}"
    assert found.effect_options == {"effect_retries": 2, "scope": "run", "identity": ("to",)}
    assert json.dumps(DagSerialization.to_dict(dag))


def test_the_context_of_the_effect_is_taken_out_of_the_signature(dag: DAG) -> None:
    made = task.effect(key="pay/{{ number }}")(pay)
    assert made("4711").operator.op_args == ("4711",)  # type: ignore[attr-defined,call-arg]
    made.override(task_id="many").expand(number=["1", "2"])
    with pytest.raises(TypeError):
        made("4711", "twice")


def test_override_changes_options_one_by_one(dag: DAG) -> None:
    made = task.effect(key="pay/{{ number }}", scope="run", timeout=5)(pay)
    changed: Any = made.override(timeout=9, retries=1)("4711").operator  # type: ignore[attr-defined,call-arg]
    assert changed.effect_options == {"scope": "run", "timeout": 9}
    assert changed.retries == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scope": "planet"}, EffectOptionError, "scope must be"),
        ({"on_in_doubt": "guess"}, EffectOptionError, "on_in_doubt must be"),
        ({"on_conflict": "win"}, EffectOptionError, "on_conflict must be"),
        ({"identity": "to"}, EffectOptionError, "identity must be"),
        ({"effect_retries": -1}, EffectOptionError, "retries must be"),
        ({"timeout": 0}, FlowOptionError, "timeout must be"),
        ({"key": ""}, EffectOptionError, "key is empty"),
        ({"key": 4711}, EffectOptionError, "key must be a str"),
        ({"key": "x" * 513}, EffectOptionError, "513 characters"),
        ({"reconcile": "send"}, EffectOptionError, "reconcile must be a function, got 'send'"),
        ({"require_approval": "yes"}, EffectOptionError, "require_approval must be True or False, got 'yes'"),
    ],
)
def test_a_wrong_option_is_told_at_the_decorator(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        task.effect(**options)(send)


@pytest.mark.parametrize("options", [{"key": "close"}, {"key": "close", "scope": "dag"}])
def test_a_key_without_a_template_warns(dag: DAG, options: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="task 'send': the key 'close' .* once for ever"):
        task.effect(**options)(send)("a@example.com")


@pytest.mark.parametrize("options", [{"key": "close/{{ ds }}"}, {"key": "close", "scope": "run"}, {}])
def test_other_keys_do_not_warn(dag: DAG, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        task.effect(**options)(send)("a@example.com")


def test_a_key_after_rendering() -> None:
    assert checked_key("close/2026-01-01", "close/{{ ds }}") == "close/2026-01-01"
    assert checked_key(4711, "{{ number }}") == "4711"
    assert checked_key("None such/7", "None such/{{ number }}") == "None such/7"
    assert checked_key("Nonesuch/7", "{{ customer }}/{{ number }}") == "Nonesuch/7"
    assert checked_key("closed", "{% if done %}closed{% endif %}") == "closed"
    for rendered, template in [
        ("close/None", "close/{{ ds }}"),
        (None, "{{ number }}"),
        ("None such/None", "None such/{{ n }}"),
        ("order_None", "order_{{ n }}"),
        ("orderNone", "order{{ n }}"),
        ("orderNone.pdf", "order{{ n }}.pdf"),
        ("a/None_7", "{{ customer }}/{{ n }}_{{ m }}"),
    ]:
        with pytest.raises(EffectOptionError, match="a template gave None"):
            checked_key(rendered, template)
    with pytest.raises(EffectOptionError, match="key is empty"):
        checked_key("", "{{ number }}")


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("number", ["1E5", "10E4", "7e1234567", "1_000", "0x10", "'x'", " 4711", "007", "[1]"])
def test_a_key_is_text_as_written_whatever_the_dag_makes_of_templates(number: str, native: bool) -> None:
    """As native objects 1E5 and 10E4 are one number, and two orders would share one key."""
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with DAG("parsed", schedule=None, start_date=start, render_template_as_native_obj=native):
        whole: Any = task.effect(key="{{ number }}")(pay)("x").operator  # type: ignore[attr-defined,call-arg]
        part: Any = task.effect(key="{{ number }}{{ ctx }}")(pay)("x").operator  # type: ignore[attr-defined,call-arg]
        held: Any = task.effect(key="{% set n %}{{ number }}{% endset %}{{ n }}")(pay)("x").operator  # type: ignore[attr-defined,call-arg]
    assert whole._rendered_key({"number": number}) == held._rendered_key({"number": number}) == number
    assert part._rendered_key({"number": number, "ctx": 5}) == f"{number}5"
    with pytest.raises(EffectOptionError, match="a template gave None"):
        whole._rendered_key({"number": None})


def test_a_key_whose_field_is_not_there_is_named(dag: DAG) -> None:
    made: Any = task.effect(key="close/{{ ds }}")(send)("a@example.com").operator  # type: ignore[attr-defined]
    with pytest.raises(EffectOptionError, match=r"the key 'close/\{\{ ds \}\}' can't be made: 'ds' is undefined"):
        made._rendered_key({})
