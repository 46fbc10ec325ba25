"""The SQL of the README and docs/ does what the page says, on a real ledger, as the role that the page names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.exceptions import EffectInDoubtError
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask
from tests.pages import DOCS, README, all_blocks, blocks_of

QUERIES = [*blocks_of(DOCS / "operations" / "queries.md"), *blocks_of(DOCS / "operations" / "backup.md")]
INSTALLS = [README, DOCS / "how-to" / "install.md"]

sent: list[str] = []


def lost(text: str) -> str:
    """Be a target that did it, and whose answer was lost."""
    sent.append(text)
    raise TimeoutError


def send(text: str) -> str:
    sent.append(text)
    return f"sent {text}"


@pytest.fixture
def ledger_dsn(postgres_server: PostgresServer) -> str:
    """Give an upgraded, empty ledger, as the role ``aiflow``."""
    owner = postgres_server.fresh_database("pages")
    migrate.upgrade(owner)
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))


@pytest.fixture
def task(ledger_dsn: str) -> Iterator[DurableTask]:
    sent.clear()
    ledger = PostgresLedger.connect(ledger_dsn)
    yield DurableTask(ledger=ledger, clock=SystemClock(), dag_id="billing", run_id="monday", task_id="book")
    ledger.close()


def ask(dsn: str, query: str, **params: Any) -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        cursor = connection.execute(query.encode(), params or None)
        return cursor.fetchall()


def charge(flow: Flow) -> str | None:
    flow.step("count", len, "abc")
    flow.llm("ask", "What?")
    answer: str | None = flow.effect(
        "charge", lost if flow.attempt == 1 else send, "1 EUR", key="order/1", identity="key", on_in_doubt="hold"
    )
    return answer


def in_doubt(task: DurableTask) -> int:
    """Leave a charge in doubt and give its number, as the error's message has it."""
    with pytest.raises(EffectInDoubtError) as caught:
        task.run(charge)
    return int(str(caught.value).partition("(#")[2].partition(")")[0])


def test_every_sql_block_is_tested() -> None:
    tested = {*QUERIES, *(block for page in INSTALLS for block in blocks_of(page))}
    assert not [block.label for block in all_blocks("sql") if block not in tested]


@pytest.mark.parametrize("block", [pytest.param(one, id=one.label) for one in QUERIES if one.language == "sql"])
def test_a_query_runs(ledger_dsn: str, task: DurableTask, block: Any) -> None:
    number = in_doubt(task)
    names = {name for name in ("dag_id", "run_id", "task_id") if f"%({name})s" in block.text}
    given = {"dag_id": "billing", "run_id": "monday", "task_id": "book"}
    rows = ask(ledger_dsn, block.text, **{name: given[name] for name in names})
    heading = block.path.read_text().splitlines()[: block.line]
    title = [line for line in heading if line.startswith("## ")][-1]
    if "wait for a person" in title:
        assert [(row["id"], row["key"], row["state"]) for row in rows] == [(number, "order/1", "in_doubt")]
    elif "cost" in title:
        assert [(row["dag_id"], row["model"], row["calls"], row["tokens_in"]) for row in rows] == [
            ("billing", "scripted", 1, 1)
        ]
    elif "attempts" in title:
        assert [(row["attempt"], row["sign"], row["ending"], row["steps_recorded"]) for row in rows] == [
            (1, "first", "failed", 2)
        ]
    elif "twice" in title:
        assert rows == []
    elif "events" in title:
        assert [row["kind"] for row in rows] == ["attempt", "step", "step"]
        assert rows[1]["data"].startswith("{")
    else:
        assert rows


@pytest.mark.parametrize("page", INSTALLS, ids=lambda page: page.name)
def test_roles_and_database_as_the_page_makes_them(page: Path, tmp_path: Path) -> None:
    [block] = [block for block in blocks_of(page) if block.language == "sql"]
    with PostgresServer(tmp_path / "pg") as server:
        superuser = server.dsn("postgres", "postgres")
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("drop database aiflow")
            connection.execute("drop role aiflow, aiflow_owner")
            for statement in re.sub(r"--.*", "", block.text).split(";"):
                if statement.strip():
                    connection.execute(statement.encode())
        address = f"@127.0.0.1:{server.port}/aiflow"
        migrate.upgrade(f"postgresql://aiflow_owner:change%20me{address}")
        ledger = PostgresLedger.connect(f"postgresql://aiflow:change%20me%20too{address}")
        try:
            ledger.check()
            with pytest.raises(EffectInDoubtError):
                DurableTask(ledger=ledger, clock=SystemClock()).run(charge)
        finally:
            ledger.close()
