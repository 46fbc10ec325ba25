"""``@task.effect``: a task whose body is one side effect, done once for its key."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, _TaskDecorator

from airflow_aiflow.decorators.durable import refuse_flow
from airflow_aiflow.decorators.signature import CTX, bare, inject, returns_mapping
from airflow_aiflow.durable.policy import EFFECT_OPTION_NAMES, EffectOptions, check_key, effect_options
from airflow_aiflow.exceptions import EffectOptionError, FlowOptionError, NoFlowError
from airflow_aiflow.hooks.attempt import check_on_clear
from airflow_aiflow.hooks.persons import AsksPersons

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.attempt import OnClear
    from airflow_aiflow.hooks.context import Work
    from airflow_aiflow.runtime.flow import Flow

#: What Jinja replaces.
TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)

#: Options under the names that a task gives them: ``retries`` is Airflow's.
OPTION_NAMES = (EFFECT_OPTION_NAMES - {"key", "retries"}) | {"effect_retries"}


def _no_context() -> Any:
    raise NoFlowError("an effect's ctx is given by aiflow while the task runs; call the function with one of your own")


def check_effect(key: object, options: Mapping[str, Any]) -> None:
    """
    Check, while the DAG is parsed, what can be known before a key is rendered.

    :param key: the business key, maybe a template.
    :param options: options of the effect, under a task's names.
    :raises EffectOptionError: if a value is not allowed.
    :raises FlowOptionError: if an option is not built yet.
    """
    if key is not None and not (isinstance(key, str) and TEMPLATE.search(key)):
        check_key(key)
    effect_options(_as_flow_options(options), EffectOptions())


def warn_once_for_ever(task_id: str, key: object, scope: str | None) -> None:
    """
    Warn about a key that is the same in every run.

    :param task_id: the task.
    :param key: its key.
    :param scope: where the key is unique; ``None``: in the DAG.
    """
    if isinstance(key, str) and scope in (None, "dag") and not TEMPLATE.search(key):
        warnings.warn(
            f"task '{task_id}': the key {key!r} has no template and scope is 'dag', so this will happen once for ever, "
            f"not once a run; put something like {{{{ ds }}}} into the key, or give scope='run'",
            UserWarning,
            stacklevel=3,
        )


def checked_key(rendered: object, template: str) -> str:
    """
    Check a key after rendering.

    :param rendered: what the template gave; a DAG that renders native objects may give a number.
    :param template: what the author wrote.
    :raises EffectOptionError: if it is empty, or a template gave "None".
    """
    key = check_key(rendered if isinstance(rendered, str) else str(rendered))
    if _nones(key) > _nones(TEMPLATE.sub("", template)):
        raise EffectOptionError(
            f"the key {template!r} became {key!r}: a template gave None, and every such run would share one key. "
            f"Nothing was sent"
        )
    return key


def _nones(text: str) -> int:
    return len(re.findall(r"(?<![A-Za-z0-9_])None(?![A-Za-z0-9_])", text))


def _as_flow_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"retries" if name == "effect_retries" else name: value for name, value in options.items()}


class EffectDecoratedOperator(AsksPersons, DecoratedOperator, PythonOperator):
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
        self.effect_options = dict(effect_options or {})
        check_effect(key, self.effect_options)
        self.on_clear = None if on_clear is None else check_on_clear(on_clear)
        python_callable = without_ctx(python_callable)
        super().__init__(
            kwargs_to_upstream={"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs},
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            show_return_value_in_logs=show_return_value_in_logs,
            **kwargs,
        )
        self.key = key
        self.effect_name = effect_name
        self._work: Work | None = None
        self._context: Context | None = None

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
        return checked_key(self.render_template(self.key, cast("Context", names)), self.key)

    def _effect(self, flow: Flow, key: str | None, given: inspect.BoundArguments) -> Any:
        fn = bare(self.python_callable)
        call = functools.partial(fn, **given.kwargs) if given.kwargs else fn
        name = self.effect_name or self.task_id
        return flow.effect(name, call, *given.args, key=key, **_as_flow_options(self.effect_options))

    def on_kill(self) -> None:
        """Let what is in hand end and be recorded; then the slot goes back."""
        if self._work is not None:
            self._work.on_kill()
        super().on_kill()


def without_ctx(fn: Callable[..., Any]) -> Callable[..., Any]:
    """
    Take the effect's context out of a signature, where it is the first parameter.

    :param fn: the author's function.
    """
    first = next(iter(inspect.signature(fn).parameters), None)
    return inject(fn, CTX, _no_context) if first == CTX else fn


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
    :raises FlowOptionError: if an option is not built yet.
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
