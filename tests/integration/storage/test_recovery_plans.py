"""What a pass of recovery reads is what stalls, whatever lies beside it: no plan goes through a big table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.connections import Connections, Params
from airflow_aiflow.storage.postgres_recovery import PostgresRecovery
from airflow_aiflow.storage.statements import statement
from bench.many import fill
from bench.recovery import LIVE, OWNER, STALLED
from tests.integration.storage.recovery_world import SCAN

#: Done executions: enough that the planner would rather not read them all.
PAST = 12_000

#: Rows that any one part of a plan may read: what is at work, waits, or is looked back on.
MOST = 5_000

#: Tables that grow with what was ever done.
BIG = {"execution", "attempt", "step", "event", "effect", "intent", "requeue", "incident"}


#: One task that ran very often.
OFTEN = """
insert into aiflow.execution (identity, dag_id, run_id, task_id, map_index, state, finished_at, heard_at)
select sha256(('often ' || n)::bytea), 'often', 'run_' || n, 'task', -1, 'succeeded', now(), now()
from generate_series(1, %(runs)s) n
"""


@pytest.fixture(scope="module")
def busy(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """Give the owner's connection to a ledger with a long past and a busy present."""
    owner = postgres_server.fresh_database("plans")
    migrate.upgrade(owner)
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(OFTEN, {"runs": MOST + 1_000})
        fill(connection, json.dumps(OWNER.to_plain()), past=PAST, live=LIVE)
        yield connection


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give each part of a plan that reads a table or an index."""
    if "Relation Name" in node or "Index Name" in node:
        yield node
    for inner in node.get("Plans", ()):
        yield from scans(inner)


class Asked(PostgresRecovery):
    """Note what is asked."""

    def __init__(self, dsn: str) -> None:
        super().__init__(Connections(dsn, 1))
        self.asked: list[tuple[str, Params | None]] = []
        ask = self._ask

        def noted(text: Any, params: Params | None = None) -> Any:
            self.asked.append((text, params))
            return ask(text, params)

        self._ask = noted  # type: ignore[assignment]


@pytest.fixture(scope="module")
def asked(busy: psycopg.Connection[Any]) -> list[tuple[str, Params | None]]:
    """Give every statement of recovery with its values: that of a pass, and those of its deeds."""
    with closing(Asked(busy_dsn(busy))) as recovery:
        found = recovery.stalled(SCAN)
        assert len(found) == STALLED
        recovery.at_work(boot_id=OWNER.boot_id, pid_namespace=OWNER.pid_namespace)
        recovery.histories([*found, replace(found[0], execution=ExecutionId("often", "run", "task"))])
        recovery.pulse()
        recovery.execution(found[0].execution)
        recovery.knows_dag(["dag_0", "nothing"])
        recovery.unalerted()
        run = (found[0].execution.dag_id, found[0].execution.run_id)
        by_run = [one for one in found if (one.execution.dag_id, one.execution.run_id) == run]
        marked = recovery.mark(by_run)
        assert len(marked) > 1
        recovery.void(marked)
        recovery.abandon(found[0])
        recovery.broken_off()
        recovery.made_up([(found[0].execution_pk, found[0].fence)])
        assert len(recovery.asked) == 13
        return recovery.asked


def reads_all(node: dict[str, Any]) -> bool:
    """Say whether a part of a plan goes through a big table."""
    return node.get("Relation Name") in BIG and node["Node Type"] == "Seq Scan"


def test_no_statement_reads_a_big_table(busy: psycopg.Connection[Any], asked: list[tuple[str, Params | None]]) -> None:
    """I22: also not what effects leave for ever."""
    for text, params in asked:
        with busy.transaction(force_rollback=True):
            [(plans,)] = busy.execute("explain (analyze, format json) " + text, params).fetchall()
        for node in scans(plans[0]["Plan"]):
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            rows = (rows + node.get("Rows Removed by Index Recheck", 0)) * node["Actual Loops"]
            assert rows <= MOST, (text, node)
            assert not reads_all(node), (text, node)


def test_nor_does_the_plan_that_a_server_keeps(
    busy: psycopg.Connection[Any], asked: list[tuple[str, Params | None]]
) -> None:
    """A statement that is asked again and again is planned once, for any values."""
    if busy.info.server_version < 160_000:
        pytest.skip("PostgreSQL shows such a plan from 16 on")
    for text, _ in asked:
        names = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
        for number, name in enumerate(names, 1):
            text = text.replace(f"%({name})s", f"${number}")
        [(plans,)] = busy.execute("explain (generic_plan, format json) " + text.replace("%%", "%")).fetchall()
        for node in scans(plans[0]["Plan"]):
            assert not reads_all(node), (text, node)


def busy_dsn(connection: psycopg.Connection[Any]) -> str:
    """Give an open connection's address, its password included."""
    info = connection.info
    return f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"


def test_a_pass_is_three_statements_and_one_more_before_a_requeue(busy: psycopg.Connection[Any]) -> None:
    with closing(Asked(busy_dsn(busy))) as recovery:
        recovery.at_work(boot_id=OWNER.boot_id, pid_namespace=OWNER.pid_namespace)
        recovery.histories(recovery.stalled(SCAN))
        assert len(recovery.asked) == 3
        recovery.pulse()
        assert [text for text, _ in recovery.asked] == [
            statement(f"recovery_{name}") for name in ("at_work", "stalled", "histories", "pulse")
        ]
