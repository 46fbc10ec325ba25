"""
Trigger a DAG run as an effect, and wait for it as none.

``TriggerDagRunOperator`` leaves the triggering to Airflow's task runner, after its ``execute`` has ended; here it is
done inside the act, so that its outcome is recorded. A run without an id of the author's gets one that is made of the
effect's idempotency key: the same trigger finds the run that is there already and makes no second one. Waiting comes
after the effect: a retry waits again and triggers nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_aiflow.exceptions import EffectNotAppliedError
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.visits import BEGIN

if TYPE_CHECKING:
    from airflow.sdk.exceptions import DagRunTriggerException

    from airflow_aiflow.operators.operator_call import OperatorOutcome

#: How the id of a run begins that bears the effect's key.
OWN_RUN = "aiflow__"

#: The XCom under which Airflow keeps the id of the run.
RUN_ID = "trigger_run_id"


def name_run(operator: Any, idempotency_key: str) -> None:
    """
    Give the run an id that bears our key, where the author gave none.

    :param operator: a ``TriggerDagRunOperator``.
    :param idempotency_key: of the effect.
    """
    if not operator.trigger_run_id:
        operator.trigger_run_id = f"{OWN_RUN}{idempotency_key}"


def trigger(ti: Any, wanted: DagRunTriggerException) -> None:
    """
    Have Airflow make the run.

    :param ti: the running task instance.
    :param wanted: what the operator asks for.
    :raises AirflowSkipException: if the run is there, and the author wants a skip then.
    :raises EffectNotAppliedError: if Airflow refuses.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException, ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    message = TriggerDagRun(
        dag_id=wanted.trigger_dag_id,
        run_id=wanted.dag_run_id,
        logical_date=wanted.logical_date,
        run_after=wanted.run_after,
        conf=wanted.conf,
        reset_dag_run=wanted.reset_dag_run,
        note=wanted.note,
    )
    try:
        answer = task_runner.SUPERVISOR_COMMS.send(message)
    except AirflowRuntimeError as error:
        status = (error.error.detail or {}).get("status_code")
        if isinstance(status, int) and 400 <= status < 500:
            raise EffectNotAppliedError(f"Airflow refuses to trigger {wanted.trigger_dag_id}: {error}") from error
        raise
    there = isinstance(answer, ErrorResponse) and answer.error == ErrorType.DAGRUN_ALREADY_EXISTS
    if there and not wanted.dag_run_id.startswith(OWN_RUN):
        why = f"run {wanted.dag_run_id} of {wanted.trigger_dag_id} exists already"
        raise AirflowSkipException(why) if wanted.skip_when_already_exists else EffectNotAppliedError(why)
    ti.xcom_push(key=RUN_ID, value=wanted.dag_run_id)


def wait(operator: Any, method: str, outcome: OperatorOutcome, go_on: Callable[[], Any], ti: Any) -> Any:
    """
    Wait for the run, where the author wants it.

    :param operator: a ``TriggerDagRunOperator``.
    :param method: as what Airflow called the task.
    :param outcome: of the triggering, replayed or not.
    :param go_on: the operator's own way back from the triggerer.
    :param ti: the running task instance.
    """
    from airflow.sdk.exceptions import AirflowException, TaskDeferred

    if not operator.wait_for_completion:
        return outcome.returned
    if method != BEGIN:
        return author(go_on)
    run_id = dict(outcome.pushed).get(RUN_ID) or operator.trigger_run_id
    if operator.deferrable:
        from airflow.providers.standard.triggers.external_task import DagStateTrigger

        raise TaskDeferred(
            trigger=DagStateTrigger(
                dag_id=operator.trigger_dag_id,
                states=operator.allowed_states + operator.failed_states,
                execution_dates=None,
                run_ids=[run_id],
                poll_interval=operator.poke_interval,
            ),
            method_name="execute_complete",
        )
    while True:
        state = ti.get_dagrun_state(operator.trigger_dag_id, run_id)
        if state in operator.failed_states:
            raise AirflowException(f"{operator.trigger_dag_id} failed with failed state {state}")
        if state in operator.allowed_states:
            return outcome.returned
        author(time.sleep, operator.poke_interval)
