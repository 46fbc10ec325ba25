"""Figures of the whole ledger: each row counted once, whoever looks how often, and none of it by a scan."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.figures import Ended, StoredCount
from airflow_aiflow.durable.record import Batch
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_doubts import PostgresDoubts
from airflow_aiflow.storage.postgres_figures import PostgresFigures
from airflow_aiflow.storage.statements import statement
from tests.contract.ledger_world import (
    a_step,
    a_usage,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
    start,
    take,
)

Plain = psycopg.Connection[tuple[Any, ...]]

#: What moves every written moment out of the half minute that the tally leaves alone; the mark a little further.
AGE = (
    "update aiflow.step set recorded_at = recorded_at - interval '60 s'",
    "update aiflow.attempt set started_at = started_at - interval '60 s', ended_at = ended_at - interval '60 s'",
    "update aiflow.intent set intended_at = intended_at - interval '60 s', settled_at = settled_at - interval '60 s'",
    "update aiflow.execution set finished_at = finished_at - interval '60 s'",
    "update aiflow.requeue set at = at - interval '60 s'",
    "update aiflow.wasted_call set at = at - interval '60 s'",
    "update aiflow.tally_mark set upto = upto - interval '61 s'",
)


@pytest.fixture
def owner(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an upgraded, empty ledger."""
    dsn = postgres_server.fresh_database("figures")
    migrate.upgrade(dsn)
    return dsn


@pytest.fixture
def dsn(postgres_server: PostgresServer, owner: str) -> str:
    """Give the address for the role that tasks use."""
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))


@pytest.fixture
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    """Give the ledger."""
    with closing(PostgresLedger.connect(dsn)) as opened:
        yield opened


@pytest.fixture
def figures(dsn: str) -> Iterator[PostgresFigures]:
    """Give what looks, with the rights of tasks."""
    with closing(PostgresFigures.connect(dsn)) as opened:
        yield opened


@pytest.fixture
def behind(owner: str) -> Iterator[Plain]:
    """Give an owner's connection."""
    with psycopg.connect(owner, autocommit=True) as connection:
        yield connection


def age(behind: Plain) -> None:
    for change in AGE:
        behind.execute(change)


def model_call(name: str, cost: str | None) -> Any:
    usage = replace(a_usage(), cost=None if cost is None else Decimal(cost))
    return a_step(name, kind="llm", usage=usage)


def test_an_empty_ledger_gives_figures(figures: PostgresFigures) -> None:
    look = figures.look()
    assert look.totals == {}
    assert look.ended == []
    assert look.now == {("executions", "running"): 0, ("executions", "paused"): 0, ("unheard", ""): 0} | {
        ("in_doubt", ""): 0
    }
    assert look.commit_seconds > 0


def test_steps_and_model_calls_are_added_up(ledger: PostgresLedger, figures: PostgresFigures, behind: Plain) -> None:
    taken = start(ledger)
    steps = (a_step("one"), a_step("two"), model_call("dear", "0.25"), model_call("free", None))
    ledger.record(taken.lease, 1, Batch(steps))
    age(behind)
    totals = figures.look().totals
    assert (totals["steps", "step"], totals["steps", "llm"]) == (2, 2)
    assert totals["model_calls", "openai:gpt-x"] == 2
    assert totals["model_tokens_in", "openai:gpt-x"] == 2 * 1204
    assert totals["model_tokens_out", "openai:gpt-x"] == 2 * 310
    assert totals["model_cost", "openai:gpt-x"] == 0.25
    assert totals["model_calls_unpriced", "openai:gpt-x"] == 1
    assert ("model_calls", "unknown") not in totals
    assert ("model_calls_wasted", "openai:gpt-x") not in totals


def test_calls_that_gave_nothing_to_record_were_paid_too(
    ledger: PostgresLedger, figures: PostgresFigures, behind: Plain
) -> None:
    taken = start(ledger)
    ledger.record(taken.lease, 1, Batch((model_call("dear", "0.25"),)))
    behind.execute(
        "insert into aiflow.wasted_call (call_id, execution_id, generation, fence, name, model, tokens_in, tokens_out,"
        " cost) values (gen_random_uuid(), %s, 1, 1, 'dear', 'openai:gpt-x', 4, 2, 0.5)",
        (taken.lease.execution_pk,),
    )
    age(behind)
    totals = figures.look().totals
    assert (totals["model_calls", "openai:gpt-x"], totals["model_calls_wasted", "openai:gpt-x"]) == (2, 1)
    assert totals["model_cost", "openai:gpt-x"] == 0.75
    assert totals["model_tokens_in", "openai:gpt-x"] == 1208


def test_what_was_counted_is_not_counted_again(ledger: PostgresLedger, figures: PostgresFigures, behind: Plain) -> None:
    taken = start(ledger)
    ledger.record(taken.lease, 1, Batch((a_step("one"),)))
    age(behind)
    for _ in range(3):
        assert figures.look().totals["steps", "step"] == 1
    ledger.record(taken.lease, 1, Batch((a_step("two"),)))
    assert figures.look().totals["steps", "step"] == 1  # too fresh: its neighbours may be on their way
    behind.execute("update aiflow.step set recorded_at = clock_timestamp() - interval '31 s' where name = 'two'")
    behind.execute("update aiflow.tally_mark set upto = clock_timestamp() - interval '32 s'")
    assert figures.look().totals["steps", "step"] == 2


def test_two_who_look_at_once_count_each_row_once(
    ledger: PostgresLedger, dsn: str, behind: Plain, figures: PostgresFigures
) -> None:
    taken = start(ledger)
    ledger.record(taken.lease, 1, Batch(tuple(a_step(f"step {n}") for n in range(20))))
    age(behind)
    gate = threading.Barrier(4)

    def look() -> None:
        with closing(PostgresFigures.connect(dsn)) as one:
            gate.wait(20)
            one.look()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert figures.look().totals["steps", "step"] == 20


def test_attempts_are_counted_by_how_they_began_and_ended(
    ledger: PostgresLedger, figures: PostgresFigures, behind: Plain
) -> None:
    done, failed, killed = (an_execution() for _ in range(3))
    ledger.finish(take(ledger, an_attempt(done)).lease, ExecutionState.SUCCEEDED, result=None)
    ledger.finish(take(ledger, an_attempt(failed)).lease, ExecutionState.FAILED, result=None)
    dead = take(ledger, an_attempt(killed))
    ledger.record(dead.lease, 1, Batch((a_step("one"), model_call("paid", "0.5"))))
    # Long ago: the time of its end is past the mark when the next attempt writes it down.
    behind.execute("update aiflow.lease set expires_at = clock_timestamp() - interval '1 hour'")
    take(ledger, an_attempt(killed, 2))
    age(behind)
    totals = figures.look().totals
    assert {label: value for (name, label), value in totals.items() if name == "attempts_begun"} == {
        "first": 3,
        "retry": 1,
    }
    assert {label: value for (name, label), value in totals.items() if name == "attempts_ended"} == {
        "succeeded": 1,
        "failed": 1,
        "lapsed": 1,
    }
    assert totals["ready_steps", "retry"] == 2
    assert totals["ready_calls", "retry"] == 1
    assert totals["ready_cost", "retry"] == 0.5


def test_steps_of_an_earlier_generation_save_nothing(
    ledger: PostgresLedger, figures: PostgresFigures, behind: Plain
) -> None:
    execution = an_execution()
    first = take(ledger, an_attempt(execution))
    ledger.record(first.lease, 1, Batch((a_step("one"),)))
    ledger.finish(first.lease, ExecutionState.SUCCEEDED, result=None)
    take(ledger, an_attempt(execution, 2, clear_number=1, max_tries=5), new_generation=True)
    age(behind)
    totals = figures.look().totals
    assert totals["attempts_begun", "cleared"] == 1
    assert ("ready_steps", "cleared") not in totals


def test_stalls_are_counted_once_they_are_acted_on_or_told(
    ledger: PostgresLedger, figures: PostgresFigures, behind: Plain
) -> None:
    found = [start(ledger).lease.execution_pk for _ in range(5)]
    looks = [
        ("dead_worker", "requeue", False, 10.0),
        ("dead_worker", "quarantine", True, 20.0),
        ("hung", "leave", True, 700.0),
        ("lost_return", "leave", False, 60.0),
        ("unheard", "settle", False, 60.0),
    ]
    for pk, look in zip(found, looks, strict=True):
        behind.execute(
            "insert into aiflow.incident (execution_id, fence, dag_id, run_id, task_id, map_index, basis, why,"
            " look_again_at, kind, decision, report, detected_after)"
            " values (%s, 1, 'd', 'r', 't', -1, 'lapsed', '', now(), %s, %s, %s, %s)",
            (pk, *look),
        )
    for _ in range(2):
        age(behind)
        totals = figures.look().totals
        assert {label: value for (name, label), value in totals.items() if name == "incidents"} == {
            "dead_worker": 2,
            "hung": 1,
        }
        assert (totals["detected_after", "dead_worker"], totals["detected_after", "hung"]) == (30, 700)
    # It was left alone for a long time, and then it was not.
    behind.execute("update aiflow.incident set decision = 'requeue' where kind = 'lost_return'")
    age(behind)
    assert figures.look().totals["incidents", "lost_return"] == 1


def test_recoveries_are_counted_by_kind(ledger: PostgresLedger, figures: PostgresFigures, behind: Plain) -> None:
    found = [start(ledger).lease.execution_pk for _ in range(3)]
    for pk, state in zip(found, ("cleared", "consumed", "void"), strict=True):
        behind.execute(
            "insert into aiflow.incident (execution_id, fence, dag_id, run_id, task_id, map_index, basis, why,"
            " look_again_at, kind, decision, report, detected_after)"
            " values (%s, 1, 'd', 'r', 't', -1, 'lapsed', '', now(), 'hung', 'requeue', false, 1)",
            (pk,),
        )
        behind.execute(
            "insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, state)"
            " values (%s, 1, gen_random_uuid(), 0, %s)",
            (pk, state),
        )
    age(behind)
    assert figures.look().totals["recoveries", "hung"] == 2


def test_what_is_so_now(ledger: PostgresLedger, figures: PostgresFigures, behind: Plain, dsn: str) -> None:
    live, lapsed, paused, unheard, doubting = (start(ledger) for _ in range(5))
    behind.execute(
        "update aiflow.lease set expires_at = now() - interval '1 s' where execution_id = %s",
        (lapsed.lease.execution_pk,),
    )
    ledger.finish(paused.lease, ExecutionState.PAUSED, result=None, reason="waits")
    ledger.finish(unheard.lease, ExecutionState.SUCCEEDED, result=None)
    intent = an_intent(an_effect())
    ledger.intend(doubting.lease, intent)
    assert ledger.doubt(doubting.lease, intent.intent_id)
    look = figures.look()
    assert look.now == {
        ("leases", "live"): 2,
        ("leases", "lapsed"): 1,
        ("executions", "running"): 3,
        ("executions", "paused"): 1,
        ("unheard", ""): 1,
        ("in_doubt", ""): 1,
    }
    with closing(PostgresDoubts.connect(dsn)) as doubts:
        assert doubts.number() == 1
    assert live.lease.fence == 1


def test_the_last_hour_counts_what_has_not_begun_again(
    ledger: PostgresLedger, figures: PostgresFigures, behind: Plain
) -> None:
    again, good, bad, old = (an_execution() for _ in range(4))
    for execution, state in (
        (again, ExecutionState.FAILED),
        (good, ExecutionState.SUCCEEDED),
        (bad, ExecutionState.FAILED),
        (old, ExecutionState.FAILED),
    ):
        ledger.finish(take(ledger, an_attempt(execution)).lease, state, result=None)
    behind.execute(
        "insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, state)"
        " select execution_id, 1, gen_random_uuid(), 0, 'consumed' from aiflow.execution where run_id = %s",
        (good.run_id,),
    )
    take(ledger, an_attempt(again, 2))
    behind.execute("update aiflow.execution set finished_at = now() - interval '2 h' where run_id = %s", (old.run_id,))
    assert sorted(figures.look().ended, key=lambda one: one.state) == [Ended("failed", 1, 0), Ended("succeeded", 1, 1)]


def test_small_tables_are_counted_and_large_ones_estimated(
    ledger: PostgresLedger, figures: PostgresFigures, behind: Plain
) -> None:
    for _ in range(20):
        ledger.finish(start(ledger).lease, ExecutionState.SUCCEEDED, result=None)
    for _ in range(5):
        ledger.finish(start(ledger).lease, ExecutionState.FAILED, result=None)
    ledger.intend(start(ledger).lease, an_intent(an_effect()))
    stored = figures.look().stored
    assert {one for one in stored if one.number} == {
        StoredCount("executions", "succeeded", 20, False),
        StoredCount("executions", "failed", 5, False),
        StoredCount("executions", "running", 1, False),
        StoredCount("effects", "intended", 1, False),
    }
    # A state that nothing is in is told too, so that it is not taken for unknown.
    assert {one.state for one in stored if one.table == "executions"} == {state.value for state in ExecutionState}
    # Never analyzed: nothing is said rather than something wrong.
    assert [one for one in figures.look(small_table=0).stored if one.table == "executions"] == []
    behind.execute("analyze aiflow.execution")
    estimated = [one for one in figures.look(small_table=0).stored if one.table == "executions"]
    assert {(one.state, one.number) for one in estimated} >= {("succeeded", 20), ("failed", 5)}
    assert all(one.estimated for one in estimated)


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from scans(inner)


FILL = (
    (
        "insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state, finished_at, heard_at)"
        " select sha256(n::text::bytea), 'd', 'r' || n, 't', -1, 'succeeded', now() - (100000 - n) * interval '10 s',"
        " now() from generate_series(1, 100000) n"
    ),
    (
        "insert into aiflow.attempt (execution_id, fence, number, ti_id, try_number, max_tries, retries, clear_number,"
        " sign, owner, started_at, ended_at, ending) select execution_id, 1, 1, gen_random_uuid(), 1, 1, 1, 0, 'first',"
        " '{}', finished_at, finished_at, 'succeeded' from aiflow.execution"
    ),
    (
        "insert into aiflow.step (execution_id, generation, step_key, kind, name, unit, fingerprint, occurrence, fence,"
        " result, seal, ended_at, duration_ms, recorded_at) select execution_id, 1, identity, 'step', 'page', '',"
        " identity, 0, 1, '', '', now(), 1, finished_at from aiflow.execution"
    ),
    "vacuum analyze aiflow.execution",
    "vacuum analyze aiflow.attempt",
    "vacuum analyze aiflow.step",
)


def test_no_scrape_reads_a_big_table_from_end_to_end(behind: Plain, figures: PostgresFigures) -> None:
    for fill in FILL:
        behind.execute(fill)
    behind.execute("update aiflow.tally_mark set upto = now() - interval '60 s'")
    [(since, till)] = behind.execute(statement("tally_window")).fetchall()
    asked = {
        "tally_take": {"since": since, "till": till},
        "figures_now": {"most": 10_000},
        "figures_recent": {"most": 50_000},
        "figures_stored": {"small": 1_000_000},
    }
    for name, params in asked.items():
        with behind.transaction(force_rollback=True):
            [(plans,)] = behind.execute(
                "explain (analyze, format json) " + statement(name),
                params,
            ).fetchall()
        for node in scans((json.loads(plans) if isinstance(plans, str) else plans)[0]["Plan"]):
            read = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
            read += node.get("Rows Removed by Index Recheck", 0)
            assert read * node.get("Actual Loops", 1) < 20_000, (name, node["Node Type"], node)
    assert figures.look().totals["steps", "step"] > 0
