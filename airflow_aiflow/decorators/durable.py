"""``@task.durable``: a task whose body works through a flow, and resumes where a former try stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, _TaskDecorator

from airflow_aiflow.decorators.options import task_options
from airflow_aiflow.decorators.signature import FLOW, inject, returns_mapping
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.hooks.persons import AsksPersons
from airflow_aiflow.links import AiflowTimelineLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.attempt import OnClear, Recovery
    from airflow_aiflow.durable.budget import Budget
    from airflow_aiflow.hooks.context import Work
    from airflow_aiflow.runtime.flow import Flow


def refuse_flow(names: Collection[str], how: str) -> None:
    """
    Refuse an argument that aiflow gives itself.

    :param names: of the arguments that the author passes.
    :param how: what the author does with them.
    :raises FlowOptionError: if the flow is among them.
    """
    if FLOW in names:
        raise FlowOptionError(f"'{FLOW}' is given by aiflow and can't be {how}")


def _current_flow() -> Flow:
    from airflow_aiflow.runtime.current import current_flow

    return current_flow()


class DurableDecoratedOperator(AsksPersons, DecoratedOperator, PythonOperator):
    """
    Run a function under a flow.

    :param python_callable: the author's function.
    :param op_args: its positional arguments, templated.
    :param op_kwargs: its keyword arguments, templated.
    :param on_clear: what a cleared task does: ``auto``, ``resume`` or ``fresh``; ``None``: the deployment's word.
    :param compensate_on_failure: whether effects with ``compensate=`` are taken back, the last one first, where the
        task fails and no further try follows.
    :param step_timeout: seconds, or a ``timedelta``, for steps that name no ``timeout``.
    :param lease: seconds for which a heartbeat gives the right to work; the heartbeat is a third of it.
    :param recovery: what recovery does where the task stalls: ``rerun`` (at once, without delay), ``resume`` (with
        back-off), ``careful`` (once its open calls surely ended, and somebody is told), ``off`` (nothing but a report)
        or ``auto`` (one of the first three, by how long the task took before).
    :param max_recoveries: how often recovery makes the task runnable again; ``None``: the deployment's word.
    :param budget: what the task's model calls may cost, over all attempts and map indexes of a run: US dollars (``5``
        or ``"$5"``), tokens (``"200000 tokens"``), or both.
    :param labels: names and values to find its runs by, such as ``{"team": "legal"}``.
    :param share_mapped: whether a mapped task may take over what its siblings recorded before a clear: a list that
        shifted above it then costs nothing.
    """

    template_fields = ("templates_dict", "op_args", "op_kwargs")
    template_fields_renderers = {"templates_dict": "json", "op_args": "py", "op_kwargs": "py"}  # noqa: RUF012
    custom_operator_name = "@task.durable"
    operator_extra_links = (AiflowTimelineLink(),)

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        on_clear: OnClear | None = None,
        compensate_on_failure: bool = False,
        step_timeout: timedelta | float | None = None,
        lease: timedelta | float | None = None,
        recovery: Recovery = "auto",
        max_recoveries: int | None = None,
        budget: float | str | Budget | None = None,
        labels: Mapping[str, str] | None = None,
        share_mapped: bool = True,
        show_return_value_in_logs: bool = False,
        **kwargs: Any,
    ) -> None:
        self.durable_options = task_options(
            {
                "on_clear": on_clear,
                "compensate_on_failure": compensate_on_failure,
                "step_timeout": step_timeout,
                "lease": lease,
                "recovery": recovery,
                "max_recoveries": max_recoveries,
                "budget": budget,
                "labels": labels,
                "share_mapped": share_mapped,
            }
        )
        refuse_flow(op_kwargs or {}, "passed")
        python_callable = inject(python_callable, FLOW, _current_flow)
        super().__init__(
            kwargs_to_upstream={"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs},
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            show_return_value_in_logs=show_return_value_in_logs,
            **kwargs,
        )
        self._work: Work | None = None

    @property
    def is_async(self) -> bool:
        """Say no, also for an ``async def``: its loop is ours, and Airflow calls a plain function."""
        return False

    def execute(self, context: Context) -> Any:
        """Run the body under a flow, and keep a large result out of XCom."""
        from airflow_aiflow.decorators.body import for_xcom, plain_argument
        from airflow_aiflow.hooks.context import work_from_context

        self.op_args = [plain_argument(one) for one in self.op_args]
        self.op_kwargs = {name: plain_argument(one) for name, one in self.op_kwargs.items()}
        options = self.durable_options
        self._work = work_from_context(
            context,
            on_clear=options.on_clear,
            share_mapped=options.share_mapped,
            recovery=options.recovery,
            max_recoveries=options.max_recoveries,
            budget=options.budget,
            labels=options.labels,
        )
        value = super().execute(context)
        return for_xcom(value, self._work, multiple_outputs=self.multiple_outputs)

    def execute_callable(self) -> Any:
        """Run the author's function; Airflow has put its arguments together by now."""
        assert self._work is not None
        call, options = super().execute_callable, self.durable_options
        return self._work.run(
            lambda _flow: call(),
            lease=options.lease,
            step_timeout=options.step_timeout,
            compensate_on_failure=options.compensate_on_failure,
        )

    def on_kill(self) -> None:
        """Let what is in hand end and be recorded; then the slot goes back."""
        if self._work is not None:
            self._work.on_kill()
        super().on_kill()


class DurableTask(_TaskDecorator):  # type: ignore[type-arg]
    """Be a decorated function that refuses, while the DAG is parsed, what aiflow gives or can't accept."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse_flow(kwargs, "passed")
        return super().__call__(*args, **kwargs)

    def _validate_arg_names(self, func: Any, kwargs: dict[str, Any]) -> None:
        refuse_flow(kwargs, "mapped" if func == "expand" else "passed")
        super()._validate_arg_names(func, kwargs)

    def override(self, **kwargs: Any) -> Any:
        task_options(kwargs)
        return super().override(**kwargs)


def durable_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """
    Wrap a function into a durable task: what ``@task.durable`` is.

    :param python_callable: the author's function, where the decorator stands without brackets.
    :param multiple_outputs: whether each key of a returned dict is an XCom of its own; ``None``: as annotated.
    :param kwargs: options of a durable task, and any argument of an Airflow operator.
    :raises FlowOptionError: if an option is wrong.
    """
    task_options(kwargs)

    def decorate(fn: Callable[..., Any]) -> DurableTask:
        if not callable(fn):
            raise FlowOptionError(f"@task.durable takes a function, got {fn!r}; options go by keyword")
        return DurableTask(
            function=inject(fn, FLOW, _current_flow),
            multiple_outputs=returns_mapping(fn) if multiple_outputs is None else multiple_outputs,
            operator_class=DurableDecoratedOperator,
            kwargs=dict(kwargs),
            decorator_name="task.durable",
        )

    if python_callable is None:
        return decorate  # type: ignore[return-value]
    return decorate(python_callable)
