"""
``@task.durable_agent`` and ``@task.durable_llm``: common-ai's decorators, whose function gives the prompt, recorded.

The function runs in each attempt, before anything is asked: a prompt that differs from the recorded one is another
request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.ai.utils.validation import reject_sequence_with_unsupported_feature, validate_prompt
from airflow.providers.common.compat.sdk import SET_DURING_EXECUTION, context_merge, determine_kwargs
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_aiflow.operators.agent import DurableAgentOperator
from airflow_aiflow.operators.llm import DurableLLMOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class _PromptTask(DecoratedOperator):
    """
    Be an operator whose prompt the author's function gives.

    :param python_callable: gives the prompt.
    :param op_args: its positional arguments, templated.
    :param op_kwargs: its keyword arguments, templated.
    :param kwargs: what the operator takes, but for the prompt.
    """

    #: As what it is shown.
    custom_operator_name: str

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, prompt=SET_DURING_EXECUTION, **kwargs
        )

    def execute(self, context: Context) -> Any:
        """Ask the function for the prompt, then the model."""
        context_merge(context, self.op_kwargs)
        kwargs = determine_kwargs(self.python_callable, self.op_args, context)
        self.prompt = self.python_callable(*self.op_args, **kwargs)
        validate_prompt(self.prompt, decorator_name=self.custom_operator_name)
        self._check_prompt()
        self.render_template_fields(context)
        return super().execute(context)

    def _check_prompt(self) -> None:
        """Refuse a prompt that the operator's options do not go with."""
        raise NotImplementedError


class DurableAgentTask(_PromptTask, DurableAgentOperator):
    """Be the task of ``@task.durable_agent``."""

    template_fields = (*DecoratedOperator.template_fields, *DurableAgentOperator.template_fields)
    template_fields_renderers = DecoratedOperator.template_fields_renderers
    custom_operator_name = "@task.durable_agent"

    def _check_prompt(self) -> None:
        reject_sequence_with_unsupported_feature(
            self.prompt,
            decorator_name=self.custom_operator_name,
            feature_name="enable_hitl_review",
            feature_enabled=self.enable_hitl_review,
        )


class DurableLLMTask(_PromptTask, DurableLLMOperator):
    """Be the task of ``@task.durable_llm``."""

    template_fields = (*DecoratedOperator.template_fields, *DurableLLMOperator.template_fields)
    template_fields_renderers = DecoratedOperator.template_fields_renderers
    custom_operator_name = "@task.durable_llm"

    def _check_prompt(self) -> None:
        reject_sequence_with_unsupported_feature(
            self.prompt,
            decorator_name=self.custom_operator_name,
            feature_name="require_approval",
            feature_enabled=self._may_review,
        )


def durable_agent_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """
    Wrap a function that gives a prompt into a recorded agent's task: what ``@task.durable_agent`` is.

    :param python_callable: the author's function.
    :param kwargs: of ``DurableAgentOperator``.
    """
    return task_decorator_factory(python_callable, decorated_operator_class=DurableAgentTask, **kwargs)


def durable_llm_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """
    Wrap a function that gives a prompt into a recorded model call's task: what ``@task.durable_llm`` is.

    :param python_callable: the author's function.
    :param kwargs: of ``DurableLLMOperator``.
    """
    return task_decorator_factory(python_callable, decorated_operator_class=DurableLLMTask, **kwargs)
