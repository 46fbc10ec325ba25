"""Where there is no form, a task waits in the inbox alone: in ``dag.test()``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from tests.integration.airflow.conftest import Airflow

PATIENCE = 60.0


@pytest.fixture
def answers(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Have somebody answer the first question that comes up; give what was asked."""
    monkeypatch.setenv("AIRFLOW__AIFLOW__RESCHEDULE_DELAY", "1")
    asked: list[str] = []

    def answer() -> None:
        with closing(PostgresInbox.connect(airflow.ledger)) as inbox:
            entry = wait_for(lambda: next(iter(inbox.waiting()), None), "a question", PATIENCE)
            assert entry.question is not None
            asked.append(entry.question.subject)
            assert inbox.answer(entry.number, "Blue", by="ada").counts

    thread = threading.Thread(target=answer)
    thread.start()
    yield asked
    thread.join()


@pytest.mark.parametrize("body", ["flow.ask", "from_context"])
def test_dag_test_goes_on_after_the_answer_in_the_inbox(airflow: Airflow, answers: list[str], body: str) -> None:
    durable = """
    @task.durable(retries=0)
    def work(flow: Flow):
        seen.append(flow.ask("colour", "Which colour?", options=("Red", "Blue")).option)
    """
    plain = """
    @task(retries=0)
    def work():
        with Flow.from_context() as flow:
            seen.append(flow.ask("colour", "Which colour?", options=("Red", "Blue")).option)
    """
    ran = airflow.run(
        f"""
@dag(schedule=None)
def THE_DAG():
    {durable if body == "flow.ask" else plain}
    work()
THE_DAG()
"""
    )
    assert (ran.seen, answers) == (["Blue"], ["Which colour?"])
    assert ran.states == {"work": ["success"]}
