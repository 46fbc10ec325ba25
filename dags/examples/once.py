"""
Operators that you have, done once: clear any task, run the DAG twice for a customer, and look into the mail sink.

`record` gives its service our idempotency key, so a call whose reply was lost is made again by itself. `mail` can't:
where its reply is lost, a person is asked. `note` runs a command once.
"""

from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.smtp.operators.smtp import EmailOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Param, dag

from airflow_aiflow import once

CUSTOMER = "{{ params.customer }}"
JSON = {"Content-Type": "application/json"}


@dag(schedule=None, params={"customer": Param("Ada Lovelace", type="string")})
def once_for_a_customer():
    record = once(HttpOperator, key=f"customer/{CUSTOMER}", idempotency_header="Idempotency-Key", on_in_doubt="retry")(
        task_id="record",
        http_conn_id="records",
        endpoint="records",
        headers=JSON,
        data=f'{{"customer": "{CUSTOMER}"}}',
    )
    mail = once(EmailOperator, key=f"welcome/{CUSTOMER}")(
        task_id="mail",
        conn_id="smtp_default",
        from_email="hello@example.com",
        to="ada@example.com",
        subject=f"Welcome, {CUSTOMER}",
        html_content="Good to have you.",
    )
    note = once(BashOperator, key=f"note/{CUSTOMER}")(
        task_id="note", bash_command="echo $CUSTOMER is with us", env={"CUSTOMER": CUSTOMER}
    )
    record >> mail >> note


once_for_a_customer()
