"""
Cases from the field about batches and model calls, and which tests play each of them.

The calls themselves are in ``llm/test_field_calls.py``; here is what a crowd, a cleanup and a slow server do.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.connections import Connections
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from airflow_aiflow.testing import DurableTask, ScriptedModels
from tests.integration.storage.test_postgres_ledger import name_of

ROOT = Path(__file__).parents[2]

_CALLS = "tests/integration/llm/test_field_calls.py::"
_HERE = "tests/integration/test_field_batches.py::"
_EMBED = "tests/integration/llm/test_embed.py::"

#: Number of the case -> (what must come of it, the tests that hold it).
PLAYED: dict[str, tuple[str, tuple[str, ...]]] = {
    "C07": (
        "a request that a trigger would send again is refused, or bears our key; a worker submits a job, once",
        (
            "tests/unit/operators/test_once.py::test_what_does_not_fit_is_refused_where_the_task_is_made",
            "tests/integration/airflow/test_once.py::test_a_record_is_created_once_by_its_key",
            "tests/unit/runtime/test_jobs.py::test_polls_that_fail_are_repeated_and_the_job_is_not_submitted_again",
        ),
    ),
    "C15": (
        "a cleanup between two tries takes nothing that a retry needs",
        (_HERE + "test_c15_a_cleanup_between_two_tries_costs_no_call",),
    ),
    "C41": (
        "one request, and a deadline over all of it",
        (
            _CALLS + "test_c41_one_request_and_a_deadline_over_all_of_it",
            _EMBED + "test_a_batch_that_may_have_been_billed_is_asked_for_once_and_not_recorded",
        ),
    ),
    "C44": (
        "the next request is never earlier than was asked for; a long wait frees the slot",
        (
            _CALLS + "test_c44_a_wait_that_is_asked_for_is_kept_inside_the_attempt",
            _CALLS + "test_c44_a_long_wait_frees_the_slot_and_an_absurd_one_is_capped",
            _CALLS + "test_c44_a_storm_of_429_holds_no_slot",
            _EMBED + "test_a_batch_that_is_not_served_is_asked_for_again_after_the_wait",
        ),
    ),
    "C45": (
        "what was spent is the sum over all tries, and replays cost nothing",
        (
            _CALLS + "test_c45_what_was_spent_is_what_the_server_counted",
            _CALLS + "test_c45_answers_that_fit_nothing_count_too",
            "tests/integration/test_field_cases.py::test_the_usage_total_drops_what_was_spent_before_the_checkpoint",
        ),
    ),
    "I21": (
        "a crowd needs no connection for each, and waits where there is none; a claim that times out is no claim",
        (
            "tests/integration/runtime/test_maps_on_postgres.py::test_five_hundred_steps_at_once_share_four_connections",
            _HERE + "test_i21_a_crowd_of_attempts_waits_for_its_connections",
            _HERE + "test_i21_a_claim_that_runs_into_a_time_out_is_made_again",
            "tests/integration/api/test_events.py::test_many_are_followed_on_one_connection",
        ),
    ),
    "I25": (
        "a model that was retired fails by name, what is recorded stays; polls of a job that is gone come to an end",
        (
            _CALLS + "test_i25_a_model_that_was_retired_between_two_tries",
            "tests/unit/runtime/test_jobs.py::test_polls_that_never_answer_come_to_an_end",
        ),
    ),
}


@pytest.mark.parametrize("number", PLAYED)
def test_a_case_is_played_by_tests_that_exist(number: str) -> None:
    missing = []
    for where in PLAYED[number][1]:
        file, _, name = where.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        if not any(isinstance(each, ast.FunctionDef) and each.name == name for each in tree.body):
            missing.append(where)
    assert missing == []


#: What effects have sent.
SENT: list[int] = []


def send(number: int) -> int:
    SENT.append(number)
    return number


@pytest.fixture(scope="module")
def addresses(postgres_server: PostgresServer) -> tuple[str, str]:
    """Give the addresses of one upgraded ledger, for tasks and for its owner."""
    owner = postgres_server.fresh_database("field_batches")
    migrate.upgrade(owner)
    return postgres_server.dsn(name_of(owner)), owner


@pytest.fixture
def behind(addresses: tuple[str, str]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(addresses[1], autocommit=True) as connection:
        yield connection


@pytest.fixture
def ledger(addresses: tuple[str, str]) -> Iterator[PostgresLedger]:
    ledger = PostgresLedger.connect(addresses[0])
    yield ledger
    ledger.close()


def _alter(behind: psycopg.Connection[Any], word: LiteralString) -> None:
    """Change the database, as its owner may; it holds for connections that are made from then on."""
    database = sql.Identifier(behind.info.dbname)
    behind.execute(sql.SQL("alter database {} ").format(database) + sql.SQL(word))


def prompts(number: int) -> list[str]:
    return [f"Describe article {n}." for n in range(number)]


def test_c15_a_cleanup_between_two_tries_costs_no_call(ledger: PostgresLedger, addresses: tuple[str, str]) -> None:
    """The retention is over before the retry comes: only other runs forget where the answers lie."""
    models = ScriptedModels()
    recovery = PostgresRecovery(Connections(addresses[0], 2))

    def night(run_id: str) -> DurableTask:
        return DurableTask(ledger=ledger, clock=SystemClock(), models=models, dag_id="c15", run_id=run_id)

    def body(fail: bool) -> Callable[[Any], Any]:
        def run(flow: Any) -> Any:
            answers = flow.llm_map("describe", prompts(20), reuse=timedelta(days=30))
            if fail:
                raise RuntimeError("the worker is gone")
            return answers

        return run

    task = night("night 1")
    with pytest.raises(RuntimeError):
        task.run(body(fail=True))
    assert len(models.requests) == 20
    while _left(addresses[1]):
        recovery.reap_reuse(0.0)
    answers = task.run(body(fail=False))
    assert len(answers) == 20
    assert len(models.requests) == 20, "the retry replays"
    night("night 2").run(body(fail=False))
    assert len(models.requests) == 40, "another run has nothing to take"
    recovery.close()


def _left(owner: str) -> int:
    with psycopg.connect(owner) as connection:
        [(count,)] = connection.execute("select count(*) from aiflow.reuse").fetchall()
    return int(count)


def test_i21_a_crowd_of_attempts_waits_for_its_connections(
    addresses: tuple[str, str], behind: psycopg.Connection[Any]
) -> None:
    """A hundred mapped attempts, each with connections of its own as a process has; the server has room for twenty."""
    SENT.clear()

    def one(number: int) -> Any:
        own = PostgresLedger.connect(addresses[0], pool_size=1)
        try:
            task = DurableTask(ledger=own, clock=SystemClock(), dag_id="i21", map_index=number)
            return task.run(
                lambda flow: (flow.step("work", abs, -number), flow.effect("send", send, number, key=f"i21/{number}"))
            )
        finally:
            own.close()

    _alter(behind, "connection limit 20")
    try:
        with ThreadPoolExecutor(40) as pool:
            given = list(pool.map(one, range(100)))
    finally:
        _alter(behind, "connection limit -1")
    assert given == [(number, number) for number in range(100)]
    assert sorted(SENT) == list(range(100))


def test_i21_a_claim_that_runs_into_a_time_out_is_made_again(
    addresses: tuple[str, str], ledger: PostgresLedger, behind: psycopg.Connection[Any]
) -> None:
    """Somebody holds the execution's row; the claim is cut off by statement_timeout, and nothing is begun."""
    SENT.clear()

    def body(fail: bool) -> Callable[[Any], Any]:
        def run(flow: Any) -> Any:
            if fail:
                raise RuntimeError("the first try")
            return flow.effect("send", send, 1, key="timed-out")

        return run

    task = DurableTask(
        ledger=ledger, clock=SystemClock(), dag_id="i21 claim", settings=FlowSettings(ledger_patience=20.0)
    )
    with pytest.raises(RuntimeError):
        task.run(body(fail=True))
    _alter(behind, "set statement_timeout = '300ms'")
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with psycopg.connect(addresses[1]) as holder:
            holder.execute("select from aiflow.execution where dag_id = 'i21 claim' for update")
            held.set()
            free.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(30)
        slow = PostgresLedger.connect(addresses[0])
        task.ledger = slow
        timer = threading.Timer(2.0, free.set)
        timer.start()
        assert task.run(body(fail=False)) == 1
        timer.join()
        slow.close()
    finally:
        free.set()
        holder.join(60)
        _alter(behind, "reset statement_timeout")
    assert SENT == [1]
    [(attempts,)] = behind.execute(
        "select count(*) from aiflow.attempt join aiflow.execution using (execution_id) where dag_id = 'i21 claim'"
    ).fetchall()
    assert attempts == 2
