"""
Airflow's own operators, wrapped by ``once``: killed, cleared, mapped, deferred, rescheduled.

What each does is counted outside Airflow: lines of a file, mails, records, runs. The folder comes with the run's
``conf``.
"""

# A DAG file hands an XComArg on where a value is declared; no type checker follows that.
# mypy: ignore-errors

from __future__ import annotations

import datetime as dt

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.smtp.operators.smtp import EmailOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync
from airflow.sdk import Param, dag, task

from airflow_aiflow import once

OPTIONS = {"schedule": None, "start_date": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}
PARAMS = {"folder": Param(type="string")}
RUN = {"scope": "run", "on_in_doubt": "hold"}
COUNT = "echo {name} $PPID >> '{{{{ params.folder }}}}/count.txt'"


@dag(**OPTIONS)
def once_target():
    @task
    def done():
        return "done"

    done()


@dag(**OPTIONS, params=PARAMS)
def once_operators():
    once(EmailOperator, key="mail/{{ run_id }}", **RUN)(
        task_id="mail",
        from_email="close@example.com",
        to="finance@example.com",
        subject="once {{ run_id }}",
        html_content="Done.",
    )
    once(
        HttpOperator, key="record/{{ run_id }}", idempotency_header="Idempotency-Key", scope="run", on_in_doubt="retry"
    )(
        task_id="record",
        http_conn_id="records",
        endpoint="records",
        data='{"run": "{{ run_id }}"}',
        headers={"Content-Type": "application/json"},
        deferrable=True,
    )
    once(TriggerDagRunOperator, key="trigger/{{ run_id }}", scope="run", on_in_doubt="retry")(
        task_id="trigger",
        trigger_dag_id="once_target",
        wait_for_completion=True,
        poke_interval=1,
        deferrable=True,
    )
    once(DateTimeSensorAsync, key="until", **RUN)(
        task_id="until", target_time="{{ (dag_run.run_after + macros.timedelta(seconds=3)).isoformat() }}"
    )
    once(BashOperator, key="mapped/{{ env.item }}", **RUN).partial(
        task_id="mapped",
        bash_command=COUNT.format(name="mapped-$item"),
        append_env=True,
    ).expand(env=[{"item": "a"}, {"item": "b"}, {"item": "a"}])
    once(BashSensor, key="comes", **RUN)(
        task_id="comes", bash_command="test -e '{{ params.folder }}/go'", mode="reschedule", poke_interval=2
    )
    once(BashOperator, key="killed", **RUN)(
        task_id="killed",
        retries=1,
        retry_delay=dt.timedelta(seconds=1),
        bash_command=COUNT.format(name="killed") + "; until [ -e '{{ params.folder }}/never' ]; do sleep 0.2; done",
    )


once_target()
once_operators()
