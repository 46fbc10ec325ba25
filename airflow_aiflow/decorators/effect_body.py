"""
A task that calls a Python function as one effect: what ``@task.effect`` and ``EffectOperator`` share.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow_aiflow.decorators.effect_key import as_flow_options, check_effect, rendered_key
from airflow_aiflow.decorators.signature import CTX, bare, inject
from airflow_aiflow.exceptions import NoFlowError
from airflow_aiflow.hooks.attempt import check_on_clear
from airflow_aiflow.hooks.persons import AsksPersons
from airflow_aiflow.links import AiflowTimelineLink

if TYPE_CHECKING:
    from airflow.providers.standard.operators.python import PythonOperator
    from airflow.sdk import Context

    from airflow_aiflow.durable.attempt import OnClear
    from airflow_aiflow.hooks.context import Work
    from airflow_aiflow.runtime.flow import Flow

    _Operator = PythonOperator
else:
    _Operator = object


def _no_context() -> Any:
    raise NoFlowError("an effect's ctx is given by aiflow while the task runs; call the function with one of your own")


def without_ctx(fn: Callable[..., Any]) -> Callable[..., Any]:
    """
    Take the effect's context out of a signature, where it is the first parameter.

    :param fn: the author's function.
    """
    first = next(iter(inspect.signature(fn).parameters), None)
    return inject(fn, CTX, _no_context) if first == CTX else fn


class CallsOnce(AsksPersons, _Operator):
    """
    Be the first base of a ``PythonOperator`` whose function is one effect.

    Its ``python_callable`` has no ``ctx`` any more (``without_ctx``), so that Airflow never asks an author for it.
    """

    operator_extra_links = (AiflowTimelineLink(),)
    key: str | None
    effect_name: str | None
    effect_options: dict[str, Any]
    on_clear: OnClear | None
    multiple_outputs: bool
    _work: Work | None = None
    _context: Context | None = None

    def take_options(
        self, key: str | None, effect_name: str | None, options: Mapping[str, Any], on_clear: OnClear | None
    ) -> None:
        """
        Check and keep what says how the effect is done.

        :param key: the business key, a template over Airflow's context and the function's own arguments; ``None``: once
            in this task of this run, where the task is not mapped.
        :param effect_name: part of the effect's identity; ``None``: the task id.
        :param options: the effect's further options, under a task's names.
        :param on_clear: as for a durable task; matters where ``scope="generation"``.
        :raises EffectOptionError: if an option is wrong.
        """
        check_effect(key, options)
        self.key = key
        self.effect_name = effect_name
        self.effect_options = dict(options)
        self.on_clear = None if on_clear is None else check_on_clear(on_clear)

    def execute(self, context: Context) -> Any:
        """Do the effect, or give back what it gave."""
        from airflow_aiflow.decorators.body import for_xcom, plain_argument
        from airflow_aiflow.hooks.context import work_from_context

        self._context = context
        self.op_args = [plain_argument(one) for one in self.op_args]
        self.op_kwargs = {name: plain_argument(one) for name, one in self.op_kwargs.items()}
        self._work = work_from_context(context, on_clear=self.on_clear)
        value = super().execute(context)
        return for_xcom(value, self._work, multiple_outputs=self.multiple_outputs)

    def execute_callable(self) -> Any:
        """Do the effect; Airflow has put the function's arguments together by now."""
        assert self._work is not None
        given = inspect.signature(self.python_callable).bind(*self.op_args, **self.op_kwargs)
        given.apply_defaults()
        key = self._rendered_key(given.arguments)
        return self._work.run(lambda flow: self._effect(flow, key, given))

    def _rendered_key(self, arguments: Mapping[str, Any]) -> str | None:
        if self.key is None:
            return None
        # Rendered here and not as a template field: in a mapped task only its arguments tell one item from another.
        names: dict[str, Any] = {**cast("Mapping[str, Any]", self._context or {}), **arguments}
        return rendered_key(self, self.key, names)

    def _effect(self, flow: Flow, key: str | None, given: inspect.BoundArguments) -> Any:
        fn = bare(self.python_callable)
        call = functools.partial(fn, **given.kwargs) if given.kwargs else fn
        name = self.effect_name or self.task_id
        return flow.effect(name, call, *given.args, key=key, **as_flow_options(self.effect_options))

    def on_kill(self) -> None:
        """Let what is in hand end and be recorded; then the slot goes back."""
        if self._work is not None:
            self._work.on_kill()
        super().on_kill()
