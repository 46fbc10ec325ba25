"""``EffectOperator`` while a DAG is parsed, and what a wrapped operator does when its process is told to end."""

from __future__ import annotations

from typing import Any, assert_type

import pytest
from airflow.providers.smtp.operators.smtp import EmailOperator
from airflow.providers.standard.operators.bash import BashOperator

from airflow_aiflow import effect, once, step
from airflow_aiflow.decorators.functions import Recorded
from airflow_aiflow.durable.effect_context import EffectContext
from airflow_aiflow.exceptions import EffectOptionError
from airflow_aiflow.operators import EffectOperator


def pay(ctx: Any, number: str) -> str:
    return number


def test_its_options_are_the_effects_and_retries_are_airflows() -> None:
    task = EffectOperator(
        task_id="pay",
        python_callable=pay,
        op_args=["1"],
        key="pay/{{ number }}",
        retries=5,
        effect_retries=1,
        timeout=9,
    )
    assert task.retries == 5
    assert task.effect_options == {"effect_retries": 1, "timeout": 9}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on_in_doubt": "maybe"}, "on_in_doubt must be"),
        ({"key": ""}, "key is empty"),
        ({"effect_retries": -1}, "retries must be"),
        ({"identity": "number"}, "identity must be a sequence"),
    ],
)
def test_what_is_wrong_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(EffectOptionError, match=says):
        EffectOperator(task_id="pay", python_callable=pay, **options)


def test_a_fixed_key_warns() -> None:
    with pytest.warns(UserWarning, match="once for ever"):
        EffectOperator(task_id="pay", python_callable=pay, key="pay")


@pytest.mark.filterwarnings("ignore:.*was never mapped")
def test_it_maps_with_all_its_options() -> None:
    EffectOperator.partial(
        task_id="pay", python_callable=pay, key="pay/{{ number }}", on_in_doubt="hold", scope="run", effect_retries=0
    )


def test_a_signal_reaches_the_operator() -> None:
    heard: list[str] = []

    class Killable(BashOperator):
        def on_kill(self) -> None:
            heard.append(self.task_id)

    once(Killable)(task_id="work", bash_command="true").on_kill()
    assert heard == ["work"]


def test_types_are_exact() -> None:
    """A type checker holds these; at run time they say nothing."""

    @step
    def double(number: int) -> int:
        return number * 2

    @effect(key="pay/{number}")
    def transfer(ctx: EffectContext, number: str) -> str:
        return number

    @effect(key="tell/{number}")
    def tell(number: str) -> None: ...

    assert_type(once(EmailOperator, key="a/{{ ds }}"), type[EmailOperator])
    recorded: Recorded[[int], int] = double
    sent: Recorded[[str], str] = transfer
    told: Recorded[[str], None] = tell
    assert [recorded.__name__, sent.__name__, told.__name__] == ["double", "transfer", "tell"]
