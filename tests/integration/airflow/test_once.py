"""``once`` around Airflow's own operators, under Airflow's own task runner and against real services."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from airflow_aiflow.local import stack_connections
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import MailService, RecordsService
from tests.integration.airflow.conftest import HEAD, Airflow, Ran

HEAD_ONCE = (
    HEAD
    + """
from airflow.providers.smtp.operators.smtp import EmailOperator
from airflow.providers.http.operators.http import HttpOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow_aiflow import once
from airflow_aiflow.operators import EffectOperator


class Pushes(BaseOperator):
    template_fields = ("text",)
    operator_extra_links = ()

    def __init__(self, *, text, **kwargs):
        super().__init__(**kwargs)
        self.text = text

    def execute(self, context):
        seen.append(("pushes", self.task_id, self.text))
        context["ti"].xcom_push(key="length", value=len(self.text))
        return {"text": self.text, "pair": [1, 2]}


class Defers(BaseOperator):
    template_fields = ("text",)

    def __init__(self, *, text, start_from_trigger=False, **kwargs):
        super().__init__(**kwargs)
        self.text = text

    def execute(self, context):
        seen.append(("begun", self.text))
        context["ti"].xcom_push(key="job", value="job-1")
        self.defer(trigger=DateTimeTrigger(dt.datetime.now(dt.timezone.utc)), method_name="came")

    def came(self, context, event):
        seen.append(("came", self.text))
        return self.text.upper()


class Comes(BaseSensorOperator):
    def poke(self, context):
        seen.append("poke")
        return seen.count("poke") == 3


class Decides(BaseOperator):
    def execute(self, context):
        from airflow.sdk.exceptions import AirflowSkipException
        seen.append("decides")
        raise AirflowSkipException("not today")


class Raises(BaseOperator):
    template_fields = ("how",)

    def __init__(self, *, how, **kwargs):
        super().__init__(**kwargs)
        self.how = how

    def execute(self, context):
        seen.append(self.how)
        raise ConnectionRefusedError() if self.how == "refused" else RuntimeError("who knows")


def pay(ctx, number, *, cents=1):
    seen.append((number, cents, ctx.key))
    return number
"""
)


@pytest.fixture
def mails(mail_service: MailService, monkeypatch: pytest.MonkeyPatch) -> MailService:
    """Give a mail sink behind the default connection, whose hook would send a lost mail five more times."""
    connection = stack_connections.mail(mail_service)
    connection["extra"] = {**connection["extra"], "retry_limit": 5, "from_email": "close@example.com"}
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
    return mail_service


@pytest.fixture
def records(records_service: RecordsService, monkeypatch: pytest.MonkeyPatch) -> RecordsService:
    """Give a record service behind the default connection."""
    monkeypatch.setenv("AIRFLOW_CONN_HTTP_DEFAULT", json.dumps(stack_connections.records(records_service)))
    return records_service


@pytest.fixture
def run(airflow: Airflow) -> Callable[..., Ran]:
    """Give a way to run a DAG with operators; the body is that of the DAG."""

    def run(body: str, **conf: object) -> Ran:
        lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
        source = (
            f'@dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))\ndef the_dag():\n{lines}\n\n'
            f"the_dag()\n"
        )
        return airflow.run(source, head=HEAD_ONCE, conf=conf)

    return run


MAIL = """
once(EmailOperator, key="close/{{ dag_run.conf['day'] }}", scope="global", effect_name="NAME")(
    task_id="mail", to="finance@example.com", subject="Closed {{ run_id }}", html_content="Done.")
"""


OUTCOMES = """
for task_id in ("one", "two"):
    same = dict(key="p/{{ text }}", scope="run", on_in_doubt="hold")
    pushes = once(Pushes, effect_name="pushes", **same)(task_id=f"pushes_{task_id}", text="abc")
    defers = once(Defers, effect_name="defers", **same)(task_id=f"defers_{task_id}", text="def")
    decides = once(Decides, effect_name="decides", key="d", scope="run")(task_id=f"decides_{task_id}")
    if task_id == "one":
        last = [pushes, defers, decides]
    else:
        for before, after in zip(last, [pushes, defers, decides]):
            before >> after
            after.trigger_rule = "all_done"

@task(trigger_rule="all_done")
def read(ti=None):
    for task_id in ("pushes_one", "pushes_two"):
        seen.append((task_id, ti.xcom_pull(task_ids=task_id), ti.xcom_pull(task_ids=task_id, key="length")))
    for task_id in ("defers_one", "defers_two"):
        seen.append((task_id, ti.xcom_pull(task_ids=task_id), ti.xcom_pull(task_ids=task_id, key="job")))

[pushes, defers, decides] >> read()
"""


def test_a_replay_gives_all_that_came_out(run: Callable[..., Ran]) -> None:
    ran = run(OUTCOMES)
    assert ran.run.state == "success", ran.states
    assert ran.states["decides_one"] == ran.states["decides_two"] == ["skipped"]
    assert [one for one in ran.seen if one[0] == "pushes"] == [("pushes", "pushes_one", "abc")]
    assert [one for one in ran.seen if one[0] in ("begun", "came")] == [("begun", "def"), ("came", "def")]
    assert ran.seen.count("decides") == 1
    for task_id in ("pushes_one", "pushes_two"):
        assert (task_id, {"text": "abc", "pair": [1, 2]}, 3) in ran.seen
    for task_id in ("defers_one", "defers_two"):
        assert (task_id, "DEF", "job-1") in ran.seen


def test_a_failed_one_is_read_by_its_cause(run: Callable[..., Ran], airflow: Airflow) -> None:
    ran = run(
        """
once(Raises, key="r", scope="run", retries=1, on_in_doubt="hold")(task_id="refused", how="refused")
once(Raises, key="r", scope="run", on_in_doubt="hold")(task_id="unknown", how="unknown")
"""
    )
    assert ran.run.state == "failed"
    assert sorted(ran.seen) == ["refused", "refused", "unknown"]
    rows = airflow.rows("select name, state from aiflow.effect_now where key = 'r' order by 1", ran)
    assert rows == [("refused", "failed"), ("unknown", "in_doubt")]


def test_mapped_operators_and_effect_operators(run: Callable[..., Ran], mails: MailService) -> None:
    ran = run(
        """
once(EmailOperator, key="mail/{{ to }}", scope="run", on_in_doubt="hold").partial(
    task_id="mail", subject="s", html_content="h").expand(to=["a@example.com", "b@example.com", "a@example.com"])
EffectOperator(task_id="pay", python_callable=pay, op_args=[7], op_kwargs={"cents": 5}, key="pay/{{ number }}",
               scope="run", effect_retries=0)
EffectOperator.partial(task_id="pays", python_callable=pay, key="pay/{{ number }}", scope="run",
                       effect_name="pays").expand(op_args=[[1], [2], [1]])
once(Pushes).partial(task_id="keyless").expand(text=["a", "b"])
"""
    )
    assert ran.states["mail"] == ["success"] * 3
    assert len(mails.mails()) == 2
    assert sorted(ran.seen) == [(1, 1, "pay/1"), (2, 1, "pay/2"), (7, 5, "pay/7")]
    assert ran.states["keyless"] == ["failed"] * 2, "a mapped task needs a key"


def test_a_mail_whose_reply_is_lost_is_in_doubt_and_not_sent_again(run: Callable[..., Ran], mails: MailService) -> None:
    mails.set_faults(Fault("cut", first=1))
    ran = run(MAIL.replace("NAME", "lost").replace("scope=", 'on_in_doubt="hold", scope='), day="lost")
    assert ran.run.state == "failed"
    assert len(mails.mails()) == 1


CREATE = """
once(HttpOperator, key="create", scope="run", effect_name="create OPTIONS"OPTIONS)(
    task_id="create", endpoint="records", data='{"day": "1"}', headers={"Content-Type": "application/json"},
    retry_args=dict(stop=__import__("tenacity").stop_after_attempt(3)), response_filter=lambda it: it.json()["id"],
    deferrable=DEFERRABLE)
"""


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_record_is_created_once_by_its_key(
    run: Callable[..., Ran], records: RecordsService, deferrable: bool
) -> None:
    if not deferrable:
        records.set_faults(Fault("cut", first=1))
    options = ', idempotency_header="Idempotency-Key", on_in_doubt="retry"'
    body = CREATE.replace('create OPTIONS"OPTIONS', f'create"{options}').replace("DEFERRABLE", str(deferrable))
    ran = run(body)
    assert ran.run.state == "success", ran.states
    [record] = records.records()
    assert record["key"].startswith("af_")
    assert record["fields"] == {"day": "1"}


def test_a_request_without_a_key_is_sent_once(run: Callable[..., Ran], records: RecordsService) -> None:
    records.set_faults(Fault("cut", first=1))
    ran = run(CREATE.replace('create OPTIONS"OPTIONS', 'create", on_in_doubt="hold"').replace("DEFERRABLE", "False"))
    assert ran.run.state == "failed"
    assert len(records.records()) == 1


def test_a_sensor_comes_back_to_its_own_intent(run: Callable[..., Ran], airflow: Airflow) -> None:
    ran = run(
        'once(Comes, key="c", scope="run", on_in_doubt="hold")(task_id="comes", mode="reschedule", poke_interval=0.1)'
    )
    assert ran.run.state == "success", ran.states
    assert ran.seen == ["poke"] * 3


def test_a_mail_goes_out_once(run: Callable[..., Ran], mails: MailService) -> None:
    body = MAIL.replace("NAME", "first mail")
    for _ in range(2):
        assert run(body, day="monday").run.state == "success"
    assert len(mails.mails()) == 1
    assert run(body, day="tuesday").run.state == "success"
    assert len(mails.mails()) == 2


PROCEDURE = """
create schema ap;
create table ap.closed (day date, note text);
create procedure ap.close_day(day date) language sql as $$ insert into ap.closed values (day, 'procedure') $$;
"""


@pytest.fixture
def erp(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the database that the job closes days in."""
    dsn = postgres_server.fresh_database("erp")
    with psycopg.connect(dsn) as connection:
        connection.execute(PROCEDURE)
    monkeypatch.setenv("AIRFLOW_CONN_ERP", dsn)
    return dsn


def closed(erp: str) -> list[tuple[object, ...]]:
    with psycopg.connect(erp) as connection:
        return connection.execute("select day::text, note from ap.closed order by 1, 2").fetchall()


def test_the_existing_dag_runs_as_it_stands(
    airflow: Airflow, mails: MailService, records: RecordsService, erp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job f. The CRM answers every path here, so that the file needs no change."""
    with closing(Crm()) as crm:
        monkeypatch.setenv("AIRFLOW_CONN_CRM", json.dumps({"conn_type": "http", "host": crm.address}))
        source = (Path(__file__).parents[2] / "jobs" / "f_existing.txt").read_text()
        for day in (
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 2, tzinfo=UTC),
        ):
            ran = airflow.run(source, head="", logical_date=day)
            assert ran.run.state == "success", ran.states
        assert [(path, body) for path, body, _ in crm.requests] == [
            ("/v1/closes", '{"day": "2026-01-01"}'),
            ("/v1/closes", '{"day": "2026-01-02"}'),
        ]
        assert all(key.startswith("af_") for _, _, key in crm.requests)
    assert closed(erp) == [("2026-01-01", "procedure"), ("2026-01-02", "procedure")]
    assert len(mails.mails()) == 2


class Crm:
    """Be a customer's service on a port of its own: it takes every POST and notes its key."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        requests = self.requests

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                requests.append((self.path, body, self.headers["Idempotency-Key"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_statements_and_their_record_are_one_commit(run: Callable[..., Ran], erp: str) -> None:
    ran = run(
        """
same = dict(key="two", scope="run", transactional=True, effect_name="two")
insert = "insert into ap.closed values (%(day)s, \'a\') returning note; insert into ap.closed values (%(day)s, \'b\')"
for task_id in ("first", "second"):
    t = once(SQLExecuteQueryOperator, **same)(task_id=task_id, conn_id="erp", sql=insert + " returning note",
        parameters={"day": "2026-02-01"}, split_statements=True, return_last=False)
    before = t if task_id == "first" else before
    _ = before if before is t else before >> t
fails = once(SQLExecuteQueryOperator, key="fails", scope="run", transactional=True)(task_id="fails", conn_id="erp",
    sql="insert into ap.closed values (\'2026-02-02\', \'lost\'); select 1/0", split_statements=True)

@task
def read(ti=None):
    seen.extend(ti.xcom_pull(task_ids=["first", "second"]))

t >> read()
"""
    )
    assert ran.states["fails"] == ["failed"]
    assert closed(erp) == [("2026-02-01", "a"), ("2026-02-01", "b")]
    assert len(ran.seen) == 2
    assert ran.seen[0] == ran.seen[1]
    assert str(ran.seen[0]).count("a") == str(ran.seen[0]).count("b") == 1


def test_an_object_is_written_once(
    airflow: Airflow, object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = object_store.bucket()
    connection = {
        "conn_type": "aws",
        "login": object_store.access_key,
        "password": object_store.secret_key,
        "extra": {"endpoint_url": f"http://{object_store.endpoint}", "region_name": object_store.region},
    }
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    body = """
from airflow.providers.amazon.aws.operators.s3 import S3CreateObjectOperator
import os

class Counted(S3CreateObjectOperator):
    def execute(self, context):
        seen.append(os.environ["AWS_MAX_ATTEMPTS"])
        return super().execute(context)

same = dict(key="report/{{ s3_key }}", scope="run", effect_name="report", on_in_doubt="hold")
first, second = (
    once(Counted, **same)(task_id=task_id, s3_bucket="BUCKET", s3_key="a/b.txt", data="DATA", replace=False)
    for task_id in ("first", "second")
)
first >> second
"""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines()).replace("BUCKET", bucket)
    head = '@dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))\ndef the_dag():\n'
    ran = airflow.run(f"{head}{lines}\n\nthe_dag()\n", head=HEAD_ONCE)
    assert ran.run.state == "success", ran.states
    assert ran.seen == ["1"], "replace=False would have failed the second"
