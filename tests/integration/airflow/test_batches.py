"""Batches in Airflow's own task runner: items out of real databases and a real object store, results into it."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from minio import Minio

from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.storage.postgres import PostgresLedger
from tests.integration.airflow.conftest import Airflow, Ran

JOB = Path(__file__).parents[2] / "jobs" / "a_tickets.txt"

#: The job's table, small: three of a hundred tickets change until the second night.
TICKETS, CHANGED = 200, 6

HEAD = """
import datetime as dt
from airflow.sdk import dag, task
from airflow_aiflow.operators import BatchInferenceOperator, shards

seen = []
"""


@pytest.fixture
def model(model_service: ModelService, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelService]:
    """Give the stand-in model under the name of one that has a price."""
    connection = {
        "conn_type": "pydanticai",
        "host": model_service.base_url,
        "password": model_service.api_key,
        "extra": {"model": "openai-chat:gpt-4o-mini"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_PYDANTICAI_DEFAULT", json.dumps(connection))
    yield model_service
    PydanticAICaller().close()  # a process keeps its client, and the next test has a server of its own


@pytest.fixture
def s3(object_store: ObjectStoreServer) -> Minio:
    object_store.bucket("reports")
    return object_store.client()


@pytest.fixture
def warehouse(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give the job's database, as the connection ``warehouse``."""
    dsn = postgres_server.fresh_database("warehouse")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA support")
        connection.execute("CREATE TABLE support.ticket (id bigint PRIMARY KEY, subject text, body text, status text)")
        connection.execute(
            "INSERT INTO support.ticket SELECT n, 'Printer ' || n, 'The printer ' || n || ' burns. Help!', 'open'"
            " FROM generate_series(1, %s) n",
            (TICKETS,),
        )
        connection.execute("INSERT INTO support.ticket VALUES (0, 'Buy', 'Buy now', 'spam')")
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", dsn)
        monkeypatch.setenv("AIRFLOW_CONN_STRANGE", "strange://host")
        yield connection


def read(s3: Minio, uri: str) -> bytes:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    answer = s3.get_object(bucket, key)
    try:
        return bytes(answer.read())
    finally:
        answer.close()
        answer.release_conn()


def rows(s3: Minio, manifest: str) -> list[dict[str, Any]]:
    found = []
    for shard in json.loads(read(s3, manifest))["shards"]:
        content = read(s3, shard["uri"])
        assert hashlib.sha256(content).hexdigest() == shard["sha256"]
        found += [json.loads(line) for line in content.splitlines()]
    return found


def result(ran: Ran, task_id: str) -> Any:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        one = session.query(XComModel).filter_by(
            dag_id=ran.run.dag_id, run_id=ran.run.run_id, task_id=task_id, key="return_value"
        )
        found = [XComModel.deserialize_value(row) for row in one.order_by(XComModel.map_index)]
    return found[0] if len(found) == 1 else found


def test_the_nightly_job_asks_in_its_second_night_about_what_changed(
    airflow: Airflow, model: ModelService, warehouse: Any, s3: Minio
) -> None:
    first = airflow.run(JOB.read_text(), head="", logical_date=datetime(2026, 11, 29, 2, tzinfo=UTC))
    assert first.states == {"summarise": ["success"]}
    assert len(model.requests()) == TICKETS
    given = result(first, "summarise")
    assert given == {
        "manifest": "s3://reports/tickets/2026-11-29/manifest.json",
        "items": TICKETS,
        "succeeded": TICKETS,
        "failed": 0,
        "repeated": 0,
        "shards": 1,
    }
    assert {row["key"] for row in rows(s3, given["manifest"])} == {str(n) for n in range(1, TICKETS + 1)}

    warehouse.execute("UPDATE support.ticket SET body = body || ' Now!' WHERE id %% %s = 7", (TICKETS // CHANGED,))
    warehouse.execute("UPDATE support.ticket SET status = 'seen' WHERE status <> 'spam'")  # no part of the prompt
    second = airflow.run(JOB.read_text(), head="", logical_date=datetime(2026, 11, 30, 2, tzinfo=UTC))
    assert second.states == {"summarise": ["success"]}
    assert len(model.requests()) - TICKETS == CHANGED, "three calls of a hundred"
    again = {row["key"]: row["result"] for row in rows(s3, result(second, "summarise")["manifest"])}
    before = {row["key"]: row["result"] for row in rows(s3, given["manifest"])}
    assert len(again) == TICKETS
    same = [key for key in again if int(key) % (TICKETS // CHANGED) != 7]
    assert len(same) == TICKETS - CHANGED
    assert all(again[key] == before[key] for key in same)
    [(spent, reused)] = airflow.rows(
        "select count(*) filter (where s.cost is not null), count(*) filter (where s.cost is null)"
        " from aiflow.step s join aiflow.execution x using (execution_id) where x.run_id = %(run)s"
        " and x.dag_id = %(dag)s",
        second,
    )
    assert (spent, reused) == (CHANGED, TICKETS - CHANGED)


def test_a_budget_stops_the_job_before_the_call_that_would_exceed_it(
    airflow: Airflow, model: ModelService, warehouse: Any, s3: Minio
) -> None:
    source = JOB.read_text().replace('"25 USD"', '"0.001 USD"').replace("ticket_summaries", "poor_summaries")
    ran = airflow.run(source, head="", logical_date=datetime(2026, 11, 29, 2, tzinfo=UTC))
    assert ran.states == {"summarise": ["failed"]}
    assert len(model.requests()) < TICKETS
    made = len(model.requests())
    [(recorded,)] = airflow.rows(
        "select count(*) from aiflow.step s join aiflow.execution x using (execution_id)"
        " where x.run_id = %(run)s and x.dag_id = %(dag)s",
        ran,
    )
    assert recorded == made, "what was paid is recorded"


SQL = """
@dag(schedule=None)
def THE_DAG():
    BatchInferenceOperator(
        task_id="ask", items_sql="select id, body from ticket where id <= {{ params.most }} order by id",
        items_conn_id="CONN", item_key="id", prompt="{{ params.word }} {{ item.body }}",
        params={"most": 5, "word": "Say:"},
    )
THE_DAG()
"""


def test_a_query_through_any_database(
    airflow: Airflow, model: ModelService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import BaseHook

    class LittleHook(DbApiHook):
        """Be the hook of a database whose driver streams by itself."""

        conn_name_attr = "little_conn_id"

        def get_conn(self) -> Any:
            return sqlite3.connect(tmp_path / "tickets.db")

    monkeypatch.setattr(BaseHook, "get_hook", lambda *_, **__: LittleHook())
    with sqlite3.connect(tmp_path / "tickets.db") as base:
        base.execute("create table ticket (id integer, body text)")
        base.executemany("insert into ticket values (?, ?)", [(n, f"Body {n}.") for n in range(1, 9)])
    monkeypatch.setenv("AIRFLOW_CONN_LITTLE", "little://")
    ran = airflow.run(SQL.replace("CONN", "little"), head=HEAD)
    assert ran.states == {"ask": ["success"]}
    given = result(ran, "ask")
    assert (given["items"], len(model.requests())) == (5, 5)
    assert "batch-manifest.json" in str(given["manifest"]), "without a path: the artifact store's"


@pytest.mark.parametrize(
    ("sql", "conn", "wrong"),
    [
        ("select id, id from support.ticket", "warehouse", "two columns called 'id'"),
        ("select 1 as id", "pydanticai_default", "whose hook runs no SQL"),
        ("select 1 as id", "nowhere", "the connection 'nowhere'"),
        ("select 1 as id", "strange", "Is the provider of type 'strange' installed"),
        ("select subject as id from support.ticket where false", "warehouse", None),
    ],
)
def test_a_query_that_gives_no_items(
    airflow: Airflow, model: ModelService, warehouse: Any, sql: str, conn: str, wrong: str | None, capsys: Any
) -> None:
    from airflow_aiflow.exceptions import AiflowError
    from airflow_aiflow.hooks.item_query import query_rows

    if wrong is None:
        assert list(query_rows(conn, sql)) == []
    else:
        with pytest.raises(AiflowError, match=wrong):
            list(query_rows(conn, sql))


def test_a_large_query_comes_piece_by_piece(airflow: Airflow, warehouse: Any) -> None:
    from airflow_aiflow.hooks.item_query import query_rows

    rows = query_rows("warehouse", "select n as id, repeat('x', 1000) as body from generate_series(1, 100000000) n")
    assert next(rows) == {"id": 1, "body": "x" * 1000}
    [(open_cursors,)] = warehouse.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'"
    ).fetchall()
    assert open_cursors == 1
    rows.close()


PATHS = """
@dag(schedule=None)
def THE_DAG():
    BatchInferenceOperator(
        task_id="ask", items_path="s3://reports/in/NAME", item_key="id", prompt="{{ item.body }}",
        result_path="s3://reports/out/NAME", result_format="FORMAT", on_item_error=0.4,
    )
THE_DAG()
"""


def parquet(table: dict[str, list[Any]]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(table), stream)
    return stream.getvalue()


FILES = {
    "t.jsonl": b'{"id": 1, "body": "one"}\n{"id": 2, "body": "two"}\n{"id": 3, "bo',
    "t.csv": b'id,body\n1,one\n2,"two, and\nmore"\n3\n',
    "t.parquet": parquet({"id": [1, 2, 3], "body": ["one", "two", ""]}),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_of_the_object_store(airflow: Airflow, model: ModelService, s3: Minio, name: str, form: str) -> None:
    s3.put_object("reports", f"in/{name}", io.BytesIO(FILES[name]), len(FILES[name]))
    ran = airflow.run(PATHS.replace("NAME", name).replace("FORMAT", form), head=HEAD)
    assert ran.states == {"ask": ["success"]}
    given = result(ran, "ask")
    assert (given["items"], given["succeeded"], given["failed"]) == (3, 2, 1)
    assert given["manifest"] == f"s3://reports/out/{name}/manifest.json"
    [shard] = json.loads(read(s3, given["manifest"]))["shards"]
    content = read(s3, shard["uri"])
    if form == "parquet":
        table = pq.read_table(io.BytesIO(content))
        assert table["key"].to_pylist()[:2] == ["1", "2"]
        assert [error is None for error in table["error"].to_pylist()] == [True, True, False]
    else:
        assert [json.loads(line)["key"] for line in content.splitlines()][:2] == ["1", "2"]


@pytest.mark.parametrize("name", ["several/", "several/*.jsonl"])
def test_a_folder_of_the_object_store(airflow: Airflow, model: ModelService, s3: Minio, name: str) -> None:
    for file, numbers in (("b.jsonl", (3, 4)), ("a.jsonl", (1, 2)), ("_SUCCESS", ()), ("below/c.jsonl", (9,))):
        content = "".join(json.dumps({"id": n, "body": f"Body {n}."}) + "\n" for n in numbers).encode()
        s3.put_object("reports", f"in/several/{file}", io.BytesIO(content), len(content))
    source = PATHS.replace("in/NAME", f"in/{name}").replace("out/NAME", "out/several").replace("FORMAT", "jsonl")
    ran = airflow.run(source, head=HEAD)
    assert ran.states == {"ask": ["success"]}
    assert [row["key"] for row in rows(s3, result(ran, "ask")["manifest"])] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("missing.parquet", None, "could not read s3://reports/in/missing.parquet: it is not in bucket 'reports'"),
        ("cut.parquet", FILES["t.parquet"][:-20], "cut.parquet can't be read as Parquet"),
        ("t.xlsx", b"x", "names files of JSON lines"),
        ("none.parquet", parquet({"id": [1], "text": ["x"]}), "item 1 has no field 'body'; its fields: id, text"),
    ],
)
def test_a_file_that_holds_no_items(
    airflow: Airflow, model: ModelService, s3: Minio, name: str, content: bytes | None, wrong: str, capsys: Any
) -> None:
    if content is not None:
        s3.put_object("reports", f"in/{name}", io.BytesIO(content), len(content))
    source = PATHS.replace("NAME", name).replace("FORMAT", "jsonl")
    ran = airflow.run(source.replace("on_item_error=0.4", 'on_item_error="fail"'), head=HEAD)
    assert ran.states == {"ask": ["failed"]}
    assert model.requests() == []
    assert wrong in capsys.readouterr().out


MAPPED = """
@dag(schedule=None)
def THE_DAG():
    @task
    def tickets():
        return [{"id": n, "body": f"Body {n}."} for n in range(40)]

    @task
    def together(parts):
        seen.extend(parts)

    asked = BatchInferenceOperator.partial(
        task_id="ask", items=tickets(), item_key="id", prompt="{{ item.body }}", result_path="s3://reports/mapped",
    ).expand(shard=shards(3))
    together(asked.output)
THE_DAG()
"""


def test_mapped_tasks_share_the_items_by_their_keys(airflow: Airflow, model: ModelService, s3: Minio) -> None:
    ran = airflow.run(MAPPED, head=HEAD)
    assert ran.states == {"tickets": ["success"], "ask": ["success"] * 3, "together": ["success"]}
    assert len(model.requests()) == 40
    assert sum(part["items"] for part in ran.seen) == 40
    keys = [{row["key"] for row in rows(s3, part["manifest"])} for part in ran.seen]
    assert set.union(*keys) == {str(n) for n in range(40)}
    assert all(len(part) > 5 for part in keys)


SOURCES = """
from airflow_aiflow import Flow

def numbers(context, jinja_env):
    return ({"id": n, "body": f"{context['params']['word']} {n}."} for n in range(4))

@dag(schedule=None, params={"word": "Number"})
def THE_DAG():
    @task.durable
    def saved(flow: Flow):
        return flow.save(b'{"id": 1, "body": "One."}\\n{"id": 2, "body": "Two."}\\n', name="t.jsonl")

    options = {"item_key": "id", "prompt": "{{ item.body }}"}
    BatchInferenceOperator(task_id="function", items=numbers, **options)
    BatchInferenceOperator(task_id="file", items=saved(), **options)
    BatchInferenceOperator(
        task_id="query", items_sql="THE_DAG.sql", items_conn_id="warehouse", **options
    )
THE_DAG()
"""


def test_items_from_a_function_a_stored_file_and_a_file_of_sql(
    airflow: Airflow, model: ModelService, warehouse: Any
) -> None:
    number = next(airflow.numbers)
    file = airflow.home / "dags" / f"dag_of_test_{number + 1}.sql"
    file.write_text("select id, body from support.ticket where id <= 3 and id > 0 -- {{ ds_nodash }}")
    try:
        ran = airflow.run(SOURCES, head=HEAD)
    finally:
        file.unlink()
    assert ran.states == {"function": ["success"], "saved": ["success"], "file": ["success"], "query": ["success"]}
    assert {task: result(ran, task)["succeeded"] for task in ("function", "file", "query")} == {
        "function": 4,
        "file": 2,
        "query": 3,
    }
    assert len(model.requests()) == 9


POISON = """
@dag(schedule=None)
def THE_DAG():
    BatchInferenceOperator(
        task_id="ask", items=[{"id": n, "body": f"Body {n}."} for n in range(20)], item_key="id",
        prompt="{{ item.body }}", on_item_error=0.1, max_item_attempts=1, result_path="s3://reports/poison",
    )
THE_DAG()
"""


def test_what_failed_is_listed_by_its_key(airflow: Airflow, model: ModelService, s3: Minio) -> None:
    model.set_faults(Fault("status", status=400, contains="Body 7."))
    ran = airflow.run(POISON, head=HEAD)
    assert ran.states == {"ask": ["success"]}
    given = result(ran, "ask")
    assert (given["succeeded"], given["failed"]) == (19, 1)
    assert rows(s3, given["manifest"])[7]["error"]["type"] == "ModelRequestError"
    ledger = PostgresLedger.connect(airflow.ledger)
    try:
        [(execution, _, _, item)] = ledger.items.failed_of_run(ran.run.dag_id, ran.run.run_id)
    finally:
        ledger.close()
    assert (execution.task_id, item.name, item.number, item.key, item.state) == ("ask", "batch", 7, "7", "dead")


WRONG = {
    'items_sql="select 1"': "items_sql= and items_conn_id= go together",
    'items=[], items_path="s3://a/b.csv"': "items and items_path are given",
    "item_key='id'": "none of them is given",
    "items=[], on_item_error='never'": "on_item_error must be",
    "items=[], prompt='{{ ds }}'": "names 'ds'",
    "items=[], result_format='xml'": "result_format must be",
    "items=[], item_key=7": "item_key is the name of a field",
    "items=[], budget='much'": "budget must be",
}


@pytest.mark.parametrize("options", WRONG)
def test_what_cant_work_is_refused_while_the_dag_is_parsed(options: str) -> None:
    from airflow_aiflow.exceptions import FlowOptionError
    from airflow_aiflow.operators import BatchInferenceOperator

    given = eval(f"dict({options})")  # noqa: S307  # the test's own words
    with pytest.raises(FlowOptionError, match=WRONG[options]):
        BatchInferenceOperator(**{"task_id": "ask", "prompt": "{{ item }}", **given})
