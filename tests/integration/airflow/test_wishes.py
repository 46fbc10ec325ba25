"""A cancelled run in Airflow's terms: the task fails with no further try, and what it did is taken back before."""

from __future__ import annotations

from tests.integration.airflow.conftest import Airflow

SOURCE = """
def book(what):
    seen.append(f"booked {what}")
    return what


def unbook(intent, what):
    seen.append(f"no {what}")


def cancel(dag_id, run_id, dsn):
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into aiflow.submission (submission_id, identity, \\"window\\", submitted_by, dag_id, run_id, key, "
            "key_until, request_fp, input, labels, priority, state, made_at, cancel_asked_at) values "
            "(gen_random_uuid(), sha256(%(run)s::text::bytea), 1, 'ann', %(dag)s, %(run)s, 'k', now(), "
            "sha256('x'), '{}', '{}', 0, 'running', now(), now())",
            {"dag": dag_id, "run": run_id},
        )


@dag(schedule=None, dag_id="THE_DAG")
def the_dag():
    @task.durable(retries=3, compensate_on_failure=True)
    def work(flow: Flow):
        import os

        context = get_current_context()
        for what in ("a", "b"):
            flow.effect("book", book, what, key=context["run_id"] + what, compensate=unbook)
        cancel(context["dag"].dag_id, context["run_id"], os.environ["AIRFLOW_CONN_AIFLOW_LEDGER"])
        flow._session.heartbeat.beat()
        flow.step("more", seen.append, "more")

    @task
    def after(_done):
        seen.append("after")

    after(work())


the_dag()
"""


def test_a_cancelled_task_takes_back_and_has_failed_for_good(airflow: Airflow) -> None:
    ran = airflow.run(SOURCE)
    assert ran.seen == ["booked a", "booked b", "no b", "no a"]
    assert ran.states == {"work": ["failed"], "after": ["upstream_failed"]}
    query = """
        select x.state::text, a.ending::text, a.try_number from aiflow.execution x
        join aiflow.attempt a using (execution_id)
        where x.dag_id = %(dag)s and x.run_id = %(run)s and x.task_id = 'work'
    """
    assert airflow.rows(query, ran) == [("cancelled", "cancelled", 1)]
