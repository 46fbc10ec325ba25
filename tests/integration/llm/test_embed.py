"""Embedding through a connection: a real ledger, faults on the way, requests counted at the server."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import psycopg
import pytest

from airflow_aiflow.exceptions import (
    AiflowConfigError,
    ModelIncompleteError,
    ModelOutputError,
    ModelRequestError,
    ModelTimeoutError,
)
from airflow_aiflow.llm.pydantic_ai_caller import PydanticAICaller
from airflow_aiflow.local.embeddings import WIDTH, vector
from airflow_aiflow.local.fault import Fault
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.local.service import ModelService
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.vectors import read_vectors
from airflow_aiflow.storage.memory_artifacts import MemoryArtifactStore
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.testing import DurableTask, ManualClock
from tests.integration.llm.conftest import Connect
from tests.integration.llm.scripted_model import Asked, Reply, ScriptedModel, json_reply

MONTH = timedelta(days=30)
SECRET = "The salary of the managing director is one million euros."


def texts(number: int) -> list[str]:
    return [f"Clause {n}: the tenant pays on the first day of month {n}." for n in range(number)]


def vectors_of(given: list[str], width: int = WIDTH) -> Any:
    return np.array([vector(text, width) for text in given], np.float32)


def embed(given: list[str], **options: Any) -> Callable[[Any], Any]:
    return lambda f: read_vectors(f.embed("vectors", given, **({"batch_size": 8} | options)))


@pytest.fixture
def task(caller: PydanticAICaller, connect: Connect, stand_in: ModelService) -> DurableTask:
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    return DurableTask(models=caller, clock=ManualClock())


@pytest.fixture
def scripted_task(caller: PydanticAICaller, connect: Connect, scripted: ScriptedModel) -> DurableTask:
    connect("pydanticai_default", scripted.base_url, "openai:text-embedding-3-small")
    return DurableTask(models=caller, clock=ManualClock())


def reply(asked: Asked, rows: Any, **more: Any) -> Reply:
    data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
    usage = {"prompt_tokens": 1000, "total_tokens": 1000}
    return json_reply({"object": "list", "data": data, "model": "text-embedding-3-small", "usage": usage} | more)


@pytest.mark.parametrize("model", ["openai-chat:stand-in", "openai:stand-in"])
def test_texts_go_out_in_batches_whatever_the_models_wire(
    task: DurableTask, stand_in: ModelService, connect: Connect, model: str
) -> None:
    connect("wired", stand_in.base_url, model, password=stand_in.api_key)
    before = len(stand_in.requests())
    vectors = task.run(embed(texts(20), llm_conn_id="wired"))
    assert (vectors == vectors_of(texts(20))).all()
    assert len(stand_in.requests()) - before == 3


def test_a_width_may_be_wished_for_and_makes_another_call(task: DurableTask, stand_in: ModelService) -> None:
    before = len(stand_in.requests())
    for width in (16, 32, 16):
        vectors = task.run(embed(texts(4), model_settings={"dimensions": width}))
        assert (vectors == vectors_of(texts(4), width)).all()
    assert len(stand_in.requests()) - before == 2


def test_what_a_batch_costs_is_known_by_the_price_list(scripted_task: DurableTask, scripted: ScriptedModel) -> None:
    scripted.answer = lambda asked: reply(asked, [[0.5, 0.25]] * len(asked.body["input"]))
    spent: list[Any] = []

    def body(f: Any) -> Any:
        f.embed("vectors", texts(16), batch_size=8)
        spent.append(f.spent)

    scripted_task.run(body)
    assert (spent[0].calls, spent[0].tokens_in, spent[0].cost) == (2, 2000, Decimal("0.00004"))


def test_a_batch_that_is_not_served_is_asked_for_again_after_the_wait(
    task: DurableTask, stand_in: ModelService
) -> None:
    stand_in.set_faults(Fault("status", status=429, retry_after="7", first=1))
    before, began = len(stand_in.requests()), task.clock.monotonic()
    task.run(embed(texts(8)))
    assert len(stand_in.requests()) - before == 2
    assert task.clock.monotonic() - began >= 7


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("silent"), ModelTimeoutError),
        (Fault("drip", seconds=0.05), ModelTimeoutError),
        (Fault("cut"), ModelIncompleteError),
        (Fault("truncate"), ModelIncompleteError),
        (Fault("status", status=400), ModelRequestError),
    ],
)
def test_a_batch_that_may_have_been_billed_is_asked_for_once_and_not_recorded(
    task: DurableTask, stand_in: ModelService, fault: Fault, error: type[Exception]
) -> None:
    stand_in.set_faults(fault)
    before = len(stand_in.requests())
    with pytest.raises(error):
        task.run(embed(texts(8), timeout=1.5))
    assert len(stand_in.requests()) - before == 1
    stand_in.set_faults()
    assert (task.run(embed(texts(8))) == vectors_of(texts(8))).all()
    assert len(stand_in.requests()) - before == 2


def test_a_text_that_the_provider_refuses_is_found_and_costs_no_other_text(
    task: DurableTask, stand_in: ModelService
) -> None:
    given = texts(40)
    stand_in.set_faults(Fault("status", status=400, contains="Clause 13:"))
    before = len(stand_in.requests())
    vectors = task.run(embed(given, on_item_error=0.05))
    assert np.flatnonzero(np.isnan(vectors).any(axis=1)).tolist() == [13]
    right = [number for number in range(40) if number != 13]
    assert (vectors[right] == vectors_of([given[number] for number in right])).all()
    assert len(stand_in.requests()) - before == 4 + 1 + 2 * 3, "five batches of eight, one of them halved three times"
    stand_in.set_faults()
    before = len(stand_in.requests())
    task.run(embed(given, on_item_error=0.05))
    assert len(stand_in.requests()) == before, "a further try leaves it alone"


@pytest.mark.parametrize(
    ("bend", "error", "said"),
    [
        (lambda rows: rows[1:], ModelOutputError, "8 texts were sent, and 7 x 2 came"),
        (lambda rows: [*rows[1:], [float("nan"), 1.0]], ModelOutputError, "text 7 of the batch holds NaN"),
        (lambda rows: [*rows[1:], [1.0]], ModelOutputError, "one length"),
    ],
)
def test_an_answer_that_is_no_vectors_is_refused_and_paid(
    scripted_task: DurableTask, scripted: ScriptedModel, bend: Any, error: type[Exception], said: str
) -> None:
    scripted.answer = lambda asked: reply(asked, bend([[0.5, 0.25]] * len(asked.body["input"])))
    spent: list[Any] = []

    def body(f: Any) -> Any:
        try:
            embed(texts(8))(f)
        finally:
            spent.append(f.spent)

    with pytest.raises(error, match=said):
        scripted_task.run(body)
    assert (spent[0].calls, spent[0].tokens_in) == (1, 1000)


@pytest.mark.parametrize("body", [{"data": None}, {"data": [{"index": 0}]}, {"nothing": 1}, []])
def test_a_body_that_is_something_else_is_no_answer(
    scripted_task: DurableTask, scripted: ScriptedModel, body: Any
) -> None:
    scripted.answer = lambda asked: json_reply(body)
    with pytest.raises((ModelIncompleteError, ModelOutputError)):
        scripted_task.run(embed(texts(8)))
    assert len(scripted.asked) == 1


def test_a_text_that_the_provider_quotes_is_masked_in_the_error(
    scripted_task: DurableTask, scripted: ScriptedModel
) -> None:
    def quote(asked: Asked) -> Reply:
        return json_reply({"error": {"message": f"can't embed: {asked.body['input'][1]}", "type": "bad"}}, 400)

    scripted.answer = quote
    with pytest.raises(ModelRequestError) as caught:
        scripted_task.run(embed([texts(1)[0], SECRET]))
    assert "can't embed: [text]" in str(caught.value)
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_connection_whose_vendor_has_no_embeddings_is_refused(
    task: DurableTask, connect: Connect, stand_in: ModelService
) -> None:
    connect("mute", stand_in.base_url, "test", password=stand_in.api_key)
    with pytest.raises(AiflowConfigError, match="connection 'mute' can't be used for embeddings"):
        task.run(embed(texts(3), llm_conn_id="mute"))


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def night(
    dsn: str, caller: PydanticAICaller, connect: Connect, stand_in: ModelService, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], DurableTask]]:
    connect("pydanticai_default", stand_in.base_url, "openai-chat:stand-in", password=stand_in.api_key)
    ledger, store = PostgresLedger.connect(dsn), MemoryArtifactStore()

    def make(run_id: str) -> DurableTask:
        return DurableTask(
            ledger=ledger, store=store, clock=SystemClock(), models=caller, dag_id=request.node.name, run_id=run_id
        )

    yield make
    ledger.close()


def test_a_second_night_pays_for_what_changed(
    night: Callable[[str], DurableTask], stand_in: ModelService, dsn: str
) -> None:
    first, before = texts(400), len(stand_in.requests())
    night("night 1").run(embed(first, reuse=MONTH))
    assert len(stand_in.requests()) - before == 50
    chosen = set(random.Random(11).sample(range(400), 12))
    second = [f"{text} As amended." if n in chosen else text for n, text in enumerate(first)]
    random.Random(12).shuffle(second)
    before = len(stand_in.requests())
    vectors = night("night 2").run(embed(second, reuse=MONTH))
    assert (vectors == vectors_of(second)).all()
    assert len(stand_in.requests()) - before == 2, "12 texts in batches of 8"
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select x.run_id, count(*), count(s.tokens_in), count(s.result_sha256), max(length(s.result)) "
            "from aiflow.step s join aiflow.execution x using (execution_id) where x.dag_id like '%second_night%' "
            "group by 1 order by 1"
        ).fetchall()
    # A record for each text, a cost for each batch; rows hold a place in a file, never a vector.
    assert [row[:3] for row in rows] == [("night 1", 400, 50), ("night 2", 400, 2)]
    assert [row[3] for row in rows] == [0, 0]
    assert max(row[4] for row in rows) < 200


def test_records_are_committed_by_the_batch(
    night: Callable[[str], DurableTask], dsn: str, request: pytest.FixtureRequest
) -> None:
    night("night 1").run(embed(texts(64), batch_size=16, max_workers=1))
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select e.data from aiflow.event e join aiflow.execution x using (execution_id) "
            "where x.dag_id = %s and e.kind = 'items'",
            [request.node.name],
        ).fetchall()
    counts = [json.loads(row[0])["count"] for row in rows]
    assert sum(counts) == 64
    assert all(count % 16 == 0 for count in counts), "no commit holds a part of a batch"
