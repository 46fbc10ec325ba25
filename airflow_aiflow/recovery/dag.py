"""Make the DAG that recovers stalled runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_aiflow.config import checked_overrides

if TYPE_CHECKING:
    from airflow.sdk import DAG, BaseNotifier

DAG_ID = "aiflow_recovery"

#: A run that lasts longer hangs: its sensor ends after an hour, and what follows takes seconds. The next run begins.
RUN_TIMEOUT = timedelta(hours=2)


def recovery_dag(
    notify: Sequence[BaseNotifier] = (),
    *,
    dag_id: str = DAG_ID,
    poll_interval: timedelta | float = 5.0,
    deferrable: bool = True,
    ledger_conn_id: str | None = None,
    api_conn_id: str | None = None,
    pool: str | None = None,
    queue: str | None = None,
    **policy: Any,
) -> DAG:
    """
    Make the DAG that finds stalled runs in seconds and brings each home once.

    One run is always active: it waits until something has to be done, does it, and the next run begins. Its own failure
    never stops it.

    :param notify: Airflow's notifiers that carry the alerts, one an incident; none: alerts are in the ledger alone.
    :param dag_id: its name.
    :param poll_interval: between two looks; ``timedelta`` or seconds.
    :param deferrable: whether the triggerer waits; else a worker looks and gives its slot back between two looks.
    :param ledger_conn_id: connection of the ledger; ``None``: the deployment's.
    :param api_conn_id: connection of Airflow's REST API; ``None``: the deployment's.
    :param pool: of both tasks: one of their own keeps them from waiting behind what they are to recover.
    :param queue: of both tasks.
    :param policy: words of ``RecoveryPolicy`` that differ from the deployment's, such as ``max_recoveries=3`` or
        ``paused_dags=True``; durations as ``timedelta`` or seconds.
    :raises AiflowConfigError: if the policy has no such word, or it can't have that value.
    """
    where = {name: value for name, value in (("pool", pool), ("queue", queue)) if value is not None}
    shared: dict[str, Any] = {
        "policy": checked_overrides(policy),
        "ledger_conn_id": ledger_conn_id,
        "api_conn_id": api_conn_id,
        "retries": 0,  # the run after a failed one is the retry
        **where,
    }
    waits = {"poll_interval": poll_interval, "deferrable": deferrable}
    return _make(dag_id, list(notify), waits, shared)


def _make(dag_id: str, notify: Sequence[BaseNotifier], waits: dict[str, Any], shared: dict[str, Any]) -> DAG:
    from airflow.sdk import DAG

    from airflow_aiflow.operators.requeue import RequeueRunsOperator
    from airflow_aiflow.sensors.zombie import ZombieRunSensor

    with DAG(
        dag_id,
        schedule="@continuous",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        max_consecutive_failed_dag_runs=0,
        dagrun_timeout=RUN_TIMEOUT,
        tags=["aiflow"],
        description="Finds stalled runs and brings each home once",
    ) as dag:
        find = ZombieRunSensor(task_id="find", mode="reschedule", tells=bool(notify), **waits, **shared)
        # Also after a find that failed: what the triggerer could not do, a worker may.
        find >> RequeueRunsOperator(task_id="requeue", notify=notify, trigger_rule="all_done", **shared)
    return dag
