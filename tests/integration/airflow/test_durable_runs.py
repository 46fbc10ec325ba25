"""``@task.durable`` and ``@task.effect`` under Airflow's own task runner."""

from __future__ import annotations

import pytest

from airflow_aiflow.hooks import aiflow
from tests.integration.airflow.conftest import Airflow

LARGE = """
def long_page(number):
    return f"page {number} " + "x" * 1000

@dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
def the_dag():
    @task.durable
    def pages(flow: Flow):
        return [flow.step("page", long_page, number) for number in range(20)]

    @task.durable
    def facts(flow: Flow):
        return {f"key {number}": "y" * 1000 for number in range(18)}

    @task.durable
    def text(flow: Flow):
        return "z" * 20_000

    @task.durable
    def split(flow: Flow) -> dict[str, str]:
        return {"long": "l" * 20_000, "short": "s"}

    @task
    def read(pages, facts, text, long, templated):
        seen.append(("read", type(pages), len(pages), type(facts), len(facts), text[:2], long[:2], templated))

    @task
    def one_page(page):
        seen.append(("page", page[:7]))
        return page

    @task
    def one_fact(fact):
        seen.append(("fact", fact[0], len(fact[1])))

    @task.durable
    def gather(flow: Flow, pages):
        seen.append(("gathered", type(pages), len(pages)))
        return flow.step("count", len, pages)

    got = pages()
    parts = split()
    read(got, facts(), text(), parts["long"], "{{ ti.xcom_pull(task_ids='pages') | length }}")
    one_fact.expand(fact=facts.override(task_id="more_facts")())
    gather(one_page.expand(page=got))

the_dag()
"""


def test_large_results_are_transparent_to_every_reader(airflow: Airflow) -> None:
    ran = airflow.run(LARGE)
    assert ran.run.state == "success", ran.states
    assert ("read", list, 20, dict, 18, "zz", "ll", "20") in ran.seen
    assert sorted(one[1] for one in ran.seen if one[0] == "page") == sorted(f"page {n} "[:7] for n in range(20))
    assert sorted(one[1:] for one in ran.seen if one[0] == "fact") == sorted((f"key {n}", 1000) for n in range(18))
    assert ("gathered", list, 20) in ran.seen
    sizes = airflow.xcom_sizes(ran)
    for task_id in ("pages", "facts", "text", "split"):
        assert sizes[task_id] < 300, task_id
    assert sizes["one_page"] > 1000, "a plain task's XCom is Airflow's own"


def test_the_ledger_tells_what_happened(airflow: Airflow) -> None:
    ran = airflow.run(
        """
        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task
            def above():
                return 3

            @task.durable(retries=2, retry_delay=dt.timedelta(0))
            def work(flow: Flow, number, flag=False):
                flow.step("double", int.__mul__, number, 2)
                seen.append((flow.attempt, flow.generation, flow.resumed))
                return number

            work(above())
            work.override(task_id="lonely", recovery="careful", max_recoveries=0)(1)

        the_dag()
        """
    )
    assert ran.run.state == "success", ran.states
    rows = airflow.rows(
        "select e.task_id, e.state, e.heard_at is not null, a.try_number, a.max_tries, a.retries, a.clear_number, "
        "a.run_after is not null, a.upstream_digest is not null, a.recovery::text, a.max_recoveries "
        "from aiflow.execution e "
        "join aiflow.attempt a using (execution_id) where run_id = %(run)s and dag_id = %(dag)s order by 1",
        ran,
    )
    assert rows == [
        ("lonely", "succeeded", True, 1, 2, 2, 0, True, True, "careful", 0),
        ("work", "succeeded", True, 1, 2, 2, 0, True, True, "auto", None),
    ]
    assert ran.seen == [(1, 1, False)] * 2


def test_context_values_and_setup_reach_the_body(airflow: Airflow) -> None:
    ran = airflow.run(
        """
        from airflow.sdk import setup, teardown, Param

        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1), params={"path": Param("a.pdf")})
        def the_dag():
            @setup
            @task.durable
            def begin(flow: Flow):
                seen.append("begun")

            @teardown
            @task.durable
            def end(flow: Flow):
                seen.append("ended")

            @task.run_if(lambda context: True)
            @task.durable
            def review(doc, flow: Flow, *, lang="en", params=None, run_id=None):
                seen.append((doc, lang, params["path"], run_id.startswith("manual"), flow.attempt))

            begin() >> review("{{ params.path }}", lang="de") >> end()

        the_dag()
        """,
        conf={"path": "b.pdf"},
    )
    assert ran.run.state == "success", ran.states
    assert ran.seen == ["begun", ("b.pdf", "de", "b.pdf", True, 1), "ended"]


def test_an_effect_task_acts_once_for_its_key(airflow: Airflow) -> None:
    ran = airflow.run(
        """
        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task.effect(key="mail/{{ to }}", effect_name="mail")
            def mail(ctx, to, subject="hello"):
                seen.append((to, subject, ctx.key, ctx.idempotency_key))
                return {"sent": to}

            @task
            def read(sent):
                seen.append([one["sent"] for one in sent])

            read(mail.partial(subject="hi").expand(to=["a@example.com", "b@example.com", "a@example.com"]))

        the_dag()
        """
    )
    assert ran.run.state == "success", ran.states
    mails = [one for one in ran.seen if isinstance(one, tuple)]
    assert sorted(one[:3] for one in mails) == [
        ("a@example.com", "hi", "mail/a@example.com"),
        ("b@example.com", "hi", "mail/b@example.com"),
    ]
    assert len({one[3] for one in mails}) == 2
    assert ran.seen[-1] == ["a@example.com", "b@example.com", "a@example.com"]


def test_a_key_from_a_missing_value_sends_nothing(airflow: Airflow) -> None:
    ran = airflow.run(
        """
        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task.effect(key="mail/{{ to }}")
            def mail(to=None):
                seen.append("sent")

            mail()

        the_dag()
        """
    )
    assert ran.run.state == "failed"
    assert ran.seen == []


def test_a_plain_task_opens_a_flow_by_with(airflow: Airflow) -> None:
    ran = airflow.run(
        """
        from airflow_aiflow.exceptions import FlowError, NoFlowError

        def outside():
            try:
                with Flow.from_context():
                    pass
            except NoFlowError as error:
                return str(error)

        seen.append(outside())

        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task
            def work():
                with Flow.from_context() as flow:
                    seen.append(flow.step("double", int.__mul__, 3, 2))
                try:
                    Flow.from_context().step("double", int.__mul__, 3, 2)
                except FlowError as error:
                    seen.append(str(error))

            work()

        the_dag()
        """
    )
    assert ran.run.state == "success", ran.states
    outside, value, without_with = ran.seen
    assert "inside a running Airflow task" in outside
    assert value == 6
    assert "with Flow.from_context() as flow:" in without_with
    [(state, heard)] = airflow.rows(
        "select state, heard_at is not null from aiflow.execution where run_id = %(run)s and dag_id = %(dag)s", ran
    )
    assert (state, heard) == ("succeeded", True)


def test_a_plain_task_reads_an_artifact_that_a_durable_one_saved(airflow: Airflow) -> None:
    ran = airflow.run(
        """
        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task.durable
            def write(flow: Flow):
                return flow.save("<p>Grüße</p>", name="report.html")

            @task
            def read(report):
                seen.append((type(report).__name__, report.name, report.load()))

            read(write())

        the_dag()
        """
    )
    assert ran.run.state == "success", ran.states
    [(kind, name, content)] = ran.seen
    assert (kind, name) == ("ArtifactRef", "report.html")
    assert (content if isinstance(content, str) else content.decode()) == "<p>Grüße</p>"


def test_a_secret_stays_out_of_the_artifact_store(airflow: Airflow, caplog: pytest.LogCaptureFixture) -> None:
    ran = airflow.run(
        """
        from airflow.sdk.log import mask_secret

        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task.durable
            def leak(flow: Flow):
                mask_secret("hunter2-and-more")
                return ["the key is hunter2-and-more"] + ["x" * 1000] * 20

            leak()

        the_dag()
        """
    )
    assert ran.run.state == "success", ran.states
    assert airflow.xcom_sizes(ran)["leak"] > 20_000, "Airflow's own row holds what the author returned"
    [(inline, sha256)] = airflow.rows(
        "select result, result_sha256 from aiflow.execution where run_id = %(run)s and dag_id = %(dag)s", ran
    )
    assert (inline, sha256) == (None, None)
    assert "holds a secret at" in caplog.text


def test_without_its_connection_nothing_runs(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    aiflow.close_all()
    monkeypatch.delenv("AIRFLOW_CONN_AIFLOW_LEDGER")
    ran = airflow.run(
        """
        @dag(dag_id="THE_DAG", schedule=None, start_date=dt.datetime(2026, 1, 1))
        def the_dag():
            @task.durable
            def work(flow: Flow):
                seen.append("ran")

            @task
            def ask(dag_run=None):
                from airflow_aiflow.exceptions import AiflowConfigError
                from airflow_aiflow.hooks.aiflow import AiflowHook

                try:
                    AiflowHook().ledger()
                except AiflowConfigError as error:
                    seen.append(str(error))

            ask() >> work()

        the_dag()
        """
    )
    assert ran.run.state == "failed"
    [told] = ran.seen
    assert told.startswith("the connection 'aiflow_ledger' (the ledger) is not defined.")
    assert "AIRFLOW_CONN_AIFLOW_LEDGER='postgresql://aiflow:PASSWORD@HOST:5432/aiflow'" in told
    assert "aiflow up" in told
