"""``@task.effect``: a task whose body is one side effect, done once for its key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, _TaskDecorator

from airflow_aiflow.decorators.durable import refuse_flow
from airflow_aiflow.decorators.effect_body import CallsOnce, without_ctx
from airflow_aiflow.decorators.effect_key import OPTION_NAMES, check_effect, warn_once_for_ever
from airflow_aiflow.decorators.signature import returns_mapping
from airflow_aiflow.exceptions import FlowOptionError

if TYPE_CHECKING:
    from airflow_aiflow.durable.attempt import OnClear


class EffectDecoratedOperator(CallsOnce, DecoratedOperator, PythonOperator):
    """
    Run a function as one effect.

    :param python_callable: the author's function; a first parameter ``ctx`` is given the effect's context.
    :param op_args: its positional arguments, templated.
    :param op_kwargs: its keyword arguments, templated.
    :param key: the business key, a template over Airflow's context and the function's own arguments; ``None``: once in
        this task of this run, where the task is not mapped.
    :param effect_name: part of the effect's identity; ``None``: the task id.
    :param effect_options: the effect's further options.
    :param on_clear: as for a durable task; matters where ``scope="generation"``.
    """

    template_fields = ("templates_dict", "op_args", "op_kwargs")
    template_fields_renderers = {"templates_dict": "json", "op_args": "py", "op_kwargs": "py"}  # noqa: RUF012
    custom_operator_name = "@task.effect"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        effect_name: str | None = None,
        effect_options: Mapping[str, Any] | None = None,
        on_clear: OnClear | None = None,
        show_return_value_in_logs: bool = False,
        **kwargs: Any,
    ) -> None:
        self.take_options(key, effect_name, effect_options or {}, on_clear)
        python_callable = without_ctx(python_callable)
        super().__init__(
            kwargs_to_upstream={"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs},
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            show_return_value_in_logs=show_return_value_in_logs,
            **kwargs,
        )


class EffectTask(_TaskDecorator):  # type: ignore[type-arg]
    """Be a decorated function that is one effect."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        options = self.kwargs.get("effect_options", {})
        warn_once_for_ever(self.kwargs["task_id"], self.kwargs.get("key"), options.get("scope"))
        return super().__call__(*args, **kwargs)

    def override(self, **kwargs: Any) -> Any:
        return super().override(**_split(kwargs, self.kwargs.get("effect_options", {})))

    def _validate_arg_names(self, func: Any, kwargs: dict[str, Any]) -> None:
        refuse_flow(kwargs, "given to an effect")
        super()._validate_arg_names(func, kwargs)


def _split(given: Mapping[str, Any], former: Mapping[str, Any]) -> dict[str, Any]:
    """Move an effect's options out of the operator's arguments, and check them."""
    options = {**former, **{name: value for name, value in given.items() if name in OPTION_NAMES}}
    rest = {name: value for name, value in given.items() if name not in OPTION_NAMES}
    check_effect(rest.get("key"), options)
    return {**rest, "effect_options": options}


def effect_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """
    Wrap a function into a task that is one effect: what ``@task.effect`` is.

    :param python_callable: the author's function, where the decorator stands without brackets.
    :param multiple_outputs: whether each key of a returned dict is an XCom of its own; ``None``: as annotated.
    :param kwargs: options of an effect, and any argument of an Airflow operator.
    :raises EffectOptionError: if an option is wrong.
    :raises FlowOptionError: if an option is wrong.
    """
    operator_kwargs = _split(kwargs, {})

    def decorate(fn: Callable[..., Any]) -> EffectTask:
        if not callable(fn):
            raise FlowOptionError(f"@task.effect takes a function, got {fn!r}; options go by keyword")
        return EffectTask(
            function=without_ctx(fn),
            multiple_outputs=returns_mapping(fn) if multiple_outputs is None else multiple_outputs,
            operator_class=EffectDecoratedOperator,
            kwargs=dict(operator_kwargs),
            decorator_name="task.effect",
        )

    if python_callable is None:
        return decorate  # type: ignore[return-value]
    return decorate(python_callable)
