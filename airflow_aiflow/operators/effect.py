"""``EffectOperator``: ``PythonOperator`` whose function is one side effect, done once for its key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.standard.operators.python import PythonOperator

from airflow_aiflow.decorators.effect_body import CallsOnce, without_ctx
from airflow_aiflow.decorators.effect_key import OPTION_NAMES, warn_once_for_ever

if TYPE_CHECKING:
    from airflow_aiflow.durable.attempt import OnClear
    from airflow_aiflow.durable.classify import Kind
    from airflow_aiflow.durable.identity import Scope
    from airflow_aiflow.durable.policy import Duration, OnConflict, OnInDoubt
    from airflow_aiflow.durable.reconcile import Finding, Intent


class EffectOperator(CallsOnce, PythonOperator):
    """
    Run a function as one effect.

    Takes the options of an effect by their names, ``effect_retries`` for its ``retries``; ``None`` is the default of
    each. Every other argument is Airflow's.

    :param python_callable: the author's function; a first parameter ``ctx`` is given the effect's context.
    :param op_args: its positional arguments, templated.
    :param op_kwargs: its keyword arguments, templated.
    :param key: the business key, a template over Airflow's context and the function's own arguments; ``None``: once in
        this task of this run, where the task is not mapped.
    :param effect_name: part of the effect's identity; ``None``: the task id. Another one is another effect.
    :param on_clear: as for a durable task; matters where ``scope="generation"``.
    :raises EffectOptionError: if an option is wrong.
    """

    template_fields = ("templates_dict", "op_args", "op_kwargs")
    template_fields_renderers = {"templates_dict": "json", "op_args": "py", "op_kwargs": "py"}  # noqa: RUF012

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        key: str | None = None,
        effect_name: str | None = None,
        scope: Scope | None = None,
        on_in_doubt: OnInDoubt | None = None,
        reconcile: Callable[[Intent], Finding] | None = None,
        in_doubt_timeout: Duration | None = None,
        retry_window: Duration | None = None,
        identity: Sequence[str] | Literal["key"] | None = None,
        on_conflict: OnConflict | None = None,
        require_approval: bool | None = None,
        assigned_users: Sequence[str] | None = None,
        timeout: Duration | None = None,
        effect_retries: int | None = None,
        dedup_ttl: Duration | None = None,
        classify: Callable[[BaseException], Kind | None] | None = None,
        compensate: Callable[[Intent, Any], None] | None = None,
        on_clear: OnClear | None = None,
        show_return_value_in_logs: bool = False,
        **kwargs: Any,
    ) -> None:
        # Written out above, and not taken from the rest: `partial` refuses what it does not find in the signature.
        given = locals()
        options = {name: given[name] for name in sorted(OPTION_NAMES) if given[name] is not None}
        self.take_options(key, effect_name, options, on_clear)
        super().__init__(
            python_callable=without_ctx(python_callable),
            op_args=op_args,
            op_kwargs=op_kwargs,
            show_return_value_in_logs=show_return_value_in_logs,
            **kwargs,
        )
        warn_once_for_ever(self.task_id, key, options.get("scope"))
