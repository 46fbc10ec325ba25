"""DAGs of the tests of the embedded stack itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import dag, get_current_context, task


@dag(schedule=None, params={"fail_first": False})
def stack_chain() -> None:
    """Add one, five times; may fail at the first try."""

    @task(retries=1, retry_delay=timedelta(seconds=0))
    def add(number: int) -> int:
        context = get_current_context()
        print(f"adding to {number}")
        if context["params"]["fail_first"] and context["ti"].try_number == 1:
            raise RuntimeError("told to fail")
        return number + 1

    value: Any = 0
    for place in range(5):
        value = add.override(task_id=f"add_{place}")(value)


@dag(schedule=None, params={"folder": ""})
def stack_waits() -> None:
    """Say something, then wait for a file."""

    @task(retries=3, retry_delay=timedelta(seconds=0))
    def wait(params: dict[str, Any] | None = None) -> None:
        import os

        from airflow_aiflow.local.airflow_client import wait_for

        assert params is not None
        print("waiting for the file")
        with (Path(params["folder"]) / "pids").open("a") as pids:
            pids.write(f"{os.getpid()} {os.getppid()}\n")
        go = Path(params["folder"]) / "go"
        wait_for(lambda: go.exists() or None, "the file", 600)

    wait()


@dag(schedule=None)
def stack_connections() -> None:
    """Use each connection of the stack as a task does."""

    @task
    def ledger() -> list[str]:
        from airflow.providers.postgres.hooks.postgres import PostgresHook

        return [str(PostgresHook("aiflow_ledger").get_first("SELECT current_user")[0])]

    @task
    def artifacts() -> str:
        from airflow.sdk import BaseHook
        from minio import Minio

        found = BaseHook.get_connection("aiflow_artifacts")
        extra = found.extra_dejson
        client = Minio(
            f"{found.host}:{found.port}", found.login, found.password, secure=extra["secure"], region=extra["region"]
        )
        return str(client.bucket_exists(extra["bucket"]))

    @task
    def model() -> str:
        from airflow.providers.common.ai.hooks.pydantic_ai import PydanticAIHook

        hook = PydanticAIHook(llm_conn_id="pydanticai_default")
        return str(hook.create_agent(str, instructions="").run_sync("The tenant pays on the first day.").output)

    @task
    def mail() -> None:
        from airflow.providers.smtp.hooks.smtp import SmtpHook

        with SmtpHook() as hook:
            hook.send_email_smtp(to="b@example.com", subject="From a task", html_content="<p>Hello</p>")

    @task
    def record() -> int:
        from airflow.providers.http.hooks.http import HttpHook

        hook = HttpHook(method="POST", http_conn_id="records")
        return int(hook.run("records", json={"a": 1}, headers={"Idempotency-Key": "from-a-task"}).status_code)

    @task
    def api() -> bool:
        from airflow.sdk import BaseHook

        from airflow_aiflow.local.airflow_client import AirflowClient

        found = BaseHook.get_connection("aiflow_api")
        client = AirflowClient(f"{found.schema}://{found.host}:{found.port}", str(found.login), str(found.password))
        return bool(client.dag("stack_chain")["dag_id"])

    for each in (ledger, artifacts, model, mail, record, api):
        each()


stack_chain()
stack_waits()
stack_connections()
