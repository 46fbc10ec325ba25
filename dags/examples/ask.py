"""
Ask a person: before money goes out, and where nobody knows whether it went.

Trigger it and look under Required Actions in Airflow, or at `aiflow effects list --in-doubt`. With `crash` the process
is killed right after the payout was created: the next try does not pay again, it asks.
"""

import os
import signal
from datetime import timedelta

from airflow.sdk import Param, dag, task

from airflow_aiflow import EffectContext, Flow


def create_payout(ctx: EffectContext, payout: dict, crash: bool):
    from airflow.providers.http.hooks.http import HttpHook

    headers = {"Idempotency-Key": ctx.idempotency_key}
    answer = HttpHook("POST", http_conn_id="records").run("records", json=payout, headers=headers)
    if crash and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer.json()["id"]


@dag(
    schedule=None,
    params={
        "order": Param("4711", type="string"),
        "cents": Param(11_800, type="integer", minimum=1),
        "crash": Param(False, type="boolean", description="Kill the process after the payout was created"),
    },
)
def ask():
    @task.durable(retries=2, retry_delay=timedelta(seconds=2))
    def refund(flow: Flow, params=None):
        order, cents = params["order"], params["cents"]
        answer = flow.ask("limit", f"Pay {cents / 100:.2f} back for order {order}?", options=("Pay", "Refuse"))
        if answer.option == "Refuse":
            return f"refused by {answer.by}"
        return flow.effect("payout", create_payout, {"order": order, "cents": cents}, params["crash"], key=order)

    refund()


ask()
