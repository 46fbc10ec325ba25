"""One call of a wrapped operator: its request, its work under an open intent, and what comes out again on a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from airflow_aiflow.operators.dag_run import name_run, trigger, wait
from airflow_aiflow.operators.operator_call import OperatorCall, OperatorOutcome, plain_fields
from airflow_aiflow.runtime.visits import Visit, VisitedCall

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_aiflow.durable.effect_context import EffectContext
    from airflow_aiflow.durable.policy import EffectOptions
    from airflow_aiflow.operators.once_task import OnceTask
    from airflow_aiflow.runtime.flow import Flow


class OnceEffect:
    """
    Carry a wrapped operator's work out as an effect.

    :param operator: with its templates rendered.
    :param flow: the attempt at work.
    :param context: Airflow's.
    :param method: as what Airflow called the task.
    :param go_on: the operator's own code.
    """

    def __init__(self, operator: OnceTask, flow: Flow, context: Context, method: str, go_on: Callable[[], Any]) -> None:
        self._operator: Any = operator
        self._given = operator.once_options
        self._flow = flow
        self._context = cast("Mapping[str, Any]", context)
        self._method = method
        self._go_on = go_on

    def carry_out(self, name: str, options: EffectOptions) -> Any:
        """
        Do the work, or give back what it gave.

        :param name: the effect's name.
        :param options: checked.
        """
        operator, session, visit = self._operator, self._flow._session, Visit(self._method)
        counts = () if options.identity == "key" else options.identity
        names = (*operator.template_fields, *self._given.preset.also)
        fields = plain_fields(operator, dict.fromkeys(names), session, counts)
        call = OperatorCall(
            operator,
            self._context["ti"],
            session,
            visit,
            self._go_on,
            alone=self._alone,
            on_trigger=lambda wanted: trigger(self._context["ti"], wanted),
        )
        fn = call.as_function(fields, takes_ctx=self._keyed())
        recorded = VisitedCall(session, name, fn, fields, options, self._flow._names.identify, visit).run()
        outcome = OperatorOutcome.read(recorded)
        if not visit.acted:
            for key, value in outcome.pushed:
                self._context["ti"].xcom_push(key=key, value=value)
        outcome.raise_skip()
        if self._given.preset.triggers:
            return wait(operator, self._method, outcome, self._go_on, self._context["ti"])
        return outcome.returned

    def _keyed(self) -> bool:
        """Whether the target dedups by what it is given: our key in a header, or in the id of a run that it makes."""
        if self._given.preset.triggers:
            return not self._operator.trigger_run_id and not self._operator.reset_dag_run
        return self._given.header is not None

    @contextmanager
    def _alone(self, ctx: EffectContext | None) -> Iterator[None]:
        """Hand our key over, and keep the operator's clients from sending again by themselves."""
        operator, header = self._operator, self._given.header
        if ctx is not None and self._given.preset.triggers:
            name_run(operator, ctx.idempotency_key)
        with self._given.preset.alone(operator):
            if ctx is None or header is None:
                yield
                return
            kept = operator.headers
            operator.headers = {**(kept or {}), header: ctx.idempotency_key}
            try:
                yield
            finally:
                operator.headers = kept
