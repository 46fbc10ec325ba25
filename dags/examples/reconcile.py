"""
Ask the target itself: did the call that has no outcome happen?

Trigger it with `crash`: the process is killed right after the record was created. The next try looks for the record by
our idempotency key and takes its id, without calling again and without a person.
"""

import os
import signal
from datetime import timedelta

from airflow.sdk import Param, dag, task

from airflow_aiflow import DidNotHappen, EffectContext, Flow, Happened, Intent


def create_record(ctx: EffectContext, customer: str, crash: bool):
    from airflow.providers.http.hooks.http import HttpHook

    headers = {"Idempotency-Key": ctx.idempotency_key}
    answer = HttpHook("POST", http_conn_id="records").run("records", json={"customer": customer}, headers=headers)
    if crash:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer.json()["id"]


def find_record(intent: Intent) -> Happened | DidNotHappen:
    from airflow.providers.http.hooks.http import HttpHook

    answer = HttpHook("GET", http_conn_id="records").run("records", data={"key": intent.idempotency_key})
    found = answer.json()["records"]
    return Happened(found[0]["id"]) if found else DidNotHappen()


@dag(
    schedule=None,
    params={
        "customer": Param("Ada Lovelace", type="string"),
        "crash": Param(False, type="boolean", description="Kill the process after the record was created"),
    },
)
def reconcile():
    @task.durable(retries=2, retry_delay=timedelta(seconds=2))
    def record(flow: Flow, params=None, run_id=None):
        customer, crash = params["customer"], params["crash"]
        return flow.effect("record", create_record, customer, crash, key=run_id, reconcile=find_record)

    record()


reconcile()
