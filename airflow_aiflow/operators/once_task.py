"""
What ``once`` puts before an operator's class: its whole work is the act of one effect.

The operator stays what it is, with its arguments, templates, links and ways back from the triggerer. Intent before,
outcome after; a replay gives what it returned, what it pushed, and its skip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow_aiflow.decorators.effect_key import rendered_key, warn_once_for_ever
from airflow_aiflow.hooks.persons import METHOD, AsksPersons
from airflow_aiflow.operators.presets import Preset

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_aiflow.durable.attempt import OnClear
    from airflow_aiflow.hooks.context import Work
    from airflow_aiflow.runtime.flow import Flow

    _Operator = BaseOperator
else:
    _Operator = object

#: Seconds that an operator may take which sets no ``execution_timeout`` and is not known to make one brief request: a
#: script or a procedure takes minutes, and healthy work that is cut short is a call in doubt.
LONG_WORK = 3600.0


@dataclass(frozen=True, slots=True)
class OnceOptions:
    """
    Hold what was given to ``once``.

    :param key: a template; ``None``: once in this task of this run.
    :param effect_name: ``None``: the task id.
    :param options: of the effect, checked.
    :param header: gives the target our key.
    :param transactional: whether the work and its record are one commit in the target's database.
    :param on_clear: as for a durable task.
    :param preset: what is known of the class.
    """

    key: str | None
    effect_name: str | None
    options: Mapping[str, Any]
    header: str | None
    transactional: bool
    on_clear: OnClear | None
    preset: Preset = field(default_factory=Preset)


class OnceTask(AsksPersons, _Operator):
    """Be the first base of a wrapped operator."""

    once_options: ClassVar[OnceOptions]
    _aiflow_work: Work | None = None

    def check_once(self) -> None:
        """
        Refuse, while the DAG is parsed, what can't be done once.

        :raises EffectOptionError: naming the task.
        """
        given = self.once_options
        # Else the first part of its work would be the triggerer's, before any intent.
        self.start_from_trigger = False
        if given.transactional:
            from airflow_aiflow.operators.once_sql import check_transactional

            check_transactional(self)
        given.preset.check(self, given.header is not None)
        warn_once_for_ever(self.task_id, given.key, given.options.get("scope"))

    def execute(self, context: Context) -> Any:
        """Do the operator's work, or give back what it gave."""
        return self._once(context, "execute", partial(super().execute, context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on where the operator left its work to the triggerer."""
        go_on = partial(super().resume_execution, next_method, next_kwargs, context)
        return go_on() if next_method == METHOD else self._once(context, next_method, go_on)

    def on_kill(self) -> None:
        """Let what is in hand end and be recorded, and the operator do what it does then."""
        if self._aiflow_work is not None:
            self._aiflow_work.on_kill()
        super().on_kill()

    def _once(self, context: Context, method: str, go_on: Callable[[], Any]) -> Any:
        from airflow_aiflow.decorators.body import for_xcom
        from airflow_aiflow.hooks.context import work_from_context

        self._aiflow_work = work = work_from_context(context, on_clear=self.once_options.on_clear)
        value = work.run(lambda flow: self._carried_out(flow, context, method, go_on))
        return for_xcom(value, work, multiple_outputs=bool(getattr(self, "multiple_outputs", False)))

    def _carried_out(self, flow: Flow, context: Context, method: str, go_on: Callable[[], Any]) -> Any:
        from airflow_aiflow.durable.policy import effect_options

        given = self.once_options
        name, key = given.effect_name or self.task_id, self._rendered_key(context)
        options = effect_options({**self._options(flow), "key": key}, flow._effect_defaults)
        if given.transactional:
            from airflow_aiflow.operators.once_sql import run_transaction

            return run_transaction(self, flow, name, go_on, options)
        from airflow_aiflow.operators.once_effect import OnceEffect

        return OnceEffect(self, flow, context, method, go_on).carry_out(name, options)

    def _options(self, flow: Flow) -> dict[str, Any]:
        """Give the effect's options, with what an operator has for those that the author left out."""
        given, settings = self.once_options, flow._session.services.settings
        options = dict(given.options)
        if "identity" not in options and given.preset.identity is not None:
            options["identity"] = given.preset.identity
        if "timeout" not in options:
            limit = self.execution_timeout
            if limit is not None:
                options["timeout"] = limit
            elif not given.preset.brief or getattr(self, "deferrable", False):
                # While it is deferred, nobody must take it for gone.
                options["timeout"] = max(LONG_WORK, settings.effect_timeout)
        if "on_in_doubt" not in options and settings.on_in_doubt == "retry" and given.header is None:
            # The deployment's word is for targets that dedup; this one is given no key.
            options["on_in_doubt"] = "ask"
        return options

    def _rendered_key(self, context: Context) -> str | None:
        key = self.once_options.key
        if key is None:
            return None
        # Rendered here and not as a template field: in a mapped task only its own arguments tell one item from another.
        told = {name: getattr(self, name, None) for name in self.template_fields}
        names: dict[str, Any] = {**told, **cast("Mapping[str, Any]", context)}
        return rendered_key(self, key, names)
