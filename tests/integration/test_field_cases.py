"""
Situations that people who run such pipelines have met, on a real ledger and a real store.

Each name begins with what goes wrong elsewhere; the assertions are the right values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import pickle
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from pydantic import BaseModel

from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    ArtifactUnavailableError,
    EffectOptionError,
    LedgerUnavailableError,
    PayloadDecodeError,
    PayloadEncodeError,
    SealError,
)
from airflow_aiflow.llm.call import LlmRequest
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.payloads import RESCUE_LIMIT
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing import DurableTask, ScriptedModels

SECRET = "sk-test-123-do-not-store"

CALLS: list[object] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture(scope="module")
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    opened = PostgresLedger.connect(dsn)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def store(object_store: ObjectStoreServer) -> S3ArtifactStore:
    return S3ArtifactStore(
        S3Settings(
            endpoint=object_store.endpoint,
            bucket=object_store.bucket(),
            access_key=object_store.access_key,
            secret_key=object_store.secret_key,
            secure=False,
        )
    )


@pytest.fixture
def task(ledger: PostgresLedger, store: S3ArtifactStore, request: pytest.FixtureRequest) -> DurableTask:
    return make_task(ledger, store, request.node.name)


def make_task(ledger: PostgresLedger, store: S3ArtifactStore, run_id: str, **options: Any) -> DurableTask:
    return DurableTask(ledger=ledger, store=store, clock=SystemClock(), run_id=run_id, **options)


class Colour(enum.Enum):
    """Be an Enum of the author's."""

    RED = "red"


class Score(BaseModel):
    """Be a model of the author's."""

    value: float
    at: datetime


def same(value: object) -> object:
    CALLS.append("called")
    return value


MOMENT = datetime(2026, 3, 1, 12, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))

ROUND_TRIPS: list[object] = [
    {"a": [{"score": np.float64(0.5)}]},
    {1, 2, 3},
    b"\x00\xff",
    Decimal("1.10"),
    MOMENT,
    {1: "a"},
    (1, 2),
    {("a", "b"): 0.9},
    2**63,
    2**20_000,
    -0.0,
    float("nan"),
    [float("nan"), float("inf"), float("-inf")],
    {"report": '{"amount": NaN}'},
    "F\u0000o",
    {"\u0000": 1},
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
    {"$tuple": [1, 2]},
    "e\u0301 \ufeff \u202e \u200b",
    np.arange(6, dtype=np.int16).reshape(2, 3),
    None,
    "",
]


@pytest.mark.parametrize("value", ROUND_TRIPS, ids=range(len(ROUND_TRIPS)))
def test_values_change_between_the_first_run_and_the_replay(task: DurableTask, value: object) -> None:
    """C31, C32, C46, C47, C60, I16: type and value on try 1 equal try 2, text is exact, envelopes are data."""

    def body(f: Flow) -> object:
        return f.step("value", same, value, cache_key=1)

    first, second = task.run(body), task.run(body)
    assert CALLS == ["called"]
    assert type(first) is type(second) is type(value)
    if isinstance(value, np.ndarray):
        assert isinstance(first, np.ndarray)
        assert first.dtype == value.dtype
    if isinstance(value, int):
        assert first == second == value
    else:
        assert repr(first) == repr(second) == repr(value)


def score() -> Score:
    CALLS.append("called")
    return Score(value=0.5, at=MOMENT)


def colour() -> Colour:
    CALLS.append("called")
    return Colour.RED


@pytest.mark.parametrize("make", [score, colour])
def test_classes_come_back_by_the_annotation_of_the_calling_code(task: DurableTask, make: Any) -> None:
    first, second = (task.run(lambda f: f.step("make", make)) for _ in range(2))
    assert first == second == make()
    assert type(first) is type(second) is type(make())


class Unstorable:
    """Be nothing that can be stored."""


def unstorable() -> object:
    CALLS.append("called")
    return {"a": [{"score": Unstorable()}]}


def test_the_error_at_checkpoint_time_does_not_say_where_the_value_sits(task: DurableTask) -> None:
    """C31."""
    with pytest.raises(PayloadEncodeError) as caught:
        task.run(lambda f: f.step("bad", unstorable))
    assert caught.value.path == "a[0].score"
    assert CALLS == ["called"]


def explode() -> object:
    return ValueError("as a value")


def test_an_exception_as_a_result_is_refused_with_a_way_out(task: DurableTask) -> None:
    """I18."""
    with pytest.raises(PayloadEncodeError, match="ValueError"):
        task.run(lambda f: f.step("bad", explode))


@pytest.mark.parametrize("size", [1_300_000, 3_000_000, 60_000_000])
def test_large_binary_results_are_kept_and_may_be_arguments_of_the_next_call(
    task: DurableTask, dsn: str, size: int
) -> None:
    """C56: they go to the store, the row stays small."""
    body = bytes(range(256)) * (size // 256)

    def make(f: Flow) -> int:
        image = f.step("draw", same, body, cache_key=size)
        return f.step("measure", len, image)  # type: ignore[arg-type]

    assert task.run(make) == task.run(make) == len(body)
    assert CALLS == ["called"]
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT max(length(result)) FROM aiflow.step WHERE execution_id = %s", (_pk(task),)
        ).fetchone()
    assert row is not None
    assert row[0] < 100


def _pk(task: DurableTask) -> int:
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    return standing.execution_pk


class Canary:
    """Leave a mark if anybody unpickles it."""

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return CALLS.append, ("unpickled",)


@pytest.mark.parametrize(
    "planted", [pickle.dumps(Canary()), b'{"$object": ["os.system", {"command": "true"}]}', b'{"$os.system": "true"}']
)
def test_loading_a_row_runs_code(task: DurableTask, dsn: str, planted: bytes) -> None:
    """C60: bytes planted in a row are refused by its seal, and are data even where the seal fits."""
    task.run(lambda f: f.step("value", same, 1))
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE aiflow.step SET result = %s WHERE execution_id = %s", (planted, _pk(task)))
    with pytest.raises(SealError, match="step 'value'"):
        task.run(lambda f: f.step("value", same, 1))
    from airflow_aiflow.durable.payload import decode

    with contextlib.suppress(PayloadDecodeError):
        assert not isinstance(decode(planted), Canary)
    assert CALLS == ["called"]


def test_an_edited_result_of_an_effect_is_replayed(task: DurableTask, dsn: str) -> None:
    task.run(lambda f: f.effect("mail", record, "x"))
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE aiflow.intent SET result = %s WHERE execution_id = %s", (b'"forged"', _pk(task)))
    with pytest.raises(SealError, match="'mail'"):
        task.run(lambda f: f.effect("mail", record, "x"))
    assert CALLS == ["sent"]


def leak() -> dict[str, str]:
    CALLS.append("called")
    return {"Authorization": f"Bearer {SECRET}"}


def quote(number: int) -> int:
    if number == 1:
        raise ValueError(f"401 for {SECRET}")
    return number


def test_keys_are_persisted(
    ledger: PostgresLedger, store: S3ArtifactStore, dsn: str, request: pytest.FixtureRequest
) -> None:
    """C61: what the masker knows reaches no table, no event, no artifact and no log."""
    models = ScriptedModels(lambda asked: f"you said {asked.prompt}")
    task = make_task(ledger, store, request.node.name, secrets=(SECRET,), models=models)

    def body(f: Flow) -> object:
        f.emit("note", text=f"key {SECRET}")
        f.progress(1, 2, message=f"with {SECRET}")
        f.llm("ask", f"my key is {SECRET}")
        f.step("use", len, f"Bearer {SECRET}")
        f.map("each", len, [f"{SECRET}/{n}" for n in range(3)])
        f.map("bad", quote, [1, 2], on_item_error="skip")
        with contextlib.suppress(EffectOptionError):
            f.effect("mail", record, f"token {SECRET}")
        return f.step("leak", leak)

    assert task.run(body) == task.run(body) == {"Authorization": f"Bearer {SECRET}"}
    assert CALLS == ["called", "called"]  # what can't be stored runs again, and the log says so
    assert not any(SECRET in line for line in task.host.lines)
    with psycopg.connect(dsn) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'aiflow'").fetchall()
        assert len(tables) > 6
        for (table,) in tables:
            rows = connection.execute(f"SELECT t::text FROM aiflow.{table} t".encode()).fetchall()
            text = "\n".join(row[0] for row in rows)
            assert SECRET not in text
            assert SECRET.encode().hex() not in text


def test_two_different_prompts_with_an_unreadable_part_share_a_row(task: DurableTask) -> None:
    """C35 is refused before anything runs; here the neighbours: equal text in other forms is other text (I16)."""

    def body(f: Flow) -> list[object]:
        return [f.step("ask", same, text) for text in ("caf\u00e9", "cafe\u0301", "caf\u00e9\ufeff")]

    assert task.run(body) == task.run(body)
    assert len(CALLS) == 3


class ScoreOld(BaseModel):
    """Be the model as it was."""

    value: float


class ScoreNew(BaseModel):
    """Be the same model after an upgrade: a field more, with a default."""

    value: float
    unit: str = "percent"


def test_old_rows_do_not_load_after_an_upgrade(ledger: PostgresLedger, store: S3ArtifactStore) -> None:
    """I17: data is stored, not classes, so a grown class reads what its predecessor wrote."""
    from airflow_aiflow.durable.payload import decode, encode

    ScoreNew.__qualname__ = ScoreOld.__qualname__ = "Score"
    stored = encode(ScoreOld(value=0.5)).data
    assert decode(stored, as_type=ScoreNew) == ScoreNew(value=0.5)
    assert decode(stored) == {"value": 0.5}


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_an_object_store_that_is_down_makes_a_done_row_without_its_result(
    ledger: PostgresLedger,
    object_store: ObjectStoreServer,
    store: S3ArtifactStore,
    request: pytest.FixtureRequest,
    size: int,
) -> None:
    """I02, I19: the row holds the result itself, so nothing paid is lost; what is too large for a row makes no row."""
    gone = S3ArtifactStore(dataclasses.replace(store.settings, endpoint="127.0.0.1:1"), patience=0.0)
    task = make_task(ledger, gone, request.node.name)

    def body(f: Flow) -> int:
        return len(str(f.step("big", same, "x" * size)))

    if size < RESCUE_LIMIT:
        assert task.run(body) == task.run(body) == size
        assert CALLS == ["called"]
        assert any("kept in the ledger's row" in line for line in task.host.warnings)
        return
    with pytest.raises(ArtifactUnavailableError):
        task.run(body)
    task.store = store
    assert task.run(body) == size
    assert CALLS == ["called", "called"]


@contextlib.contextmanager
def refusing(dsn: str, write: str, sqlstate: str) -> Iterator[None]:
    """Have the server refuse a kind of write, as it does with a full disk, or as a standby."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE 'no room' USING ERRCODE = '{sqlstate}'; END $$".encode()
        )
        try:
            connection.execute(f"CREATE TRIGGER refuse BEFORE {write} EXECUTE FUNCTION public.refuse()".encode())
            yield
        finally:
            connection.execute("DROP FUNCTION public.refuse CASCADE")


@pytest.mark.parametrize("sqlstate", ["53100", "25006"], ids=["disk full", "read-only"])
@pytest.mark.parametrize("write", ["INSERT ON aiflow.step", "UPDATE ON aiflow.intent"])
def test_a_full_or_read_only_server_drops_a_paid_answer(
    ledger: PostgresLedger,
    store: S3ArtifactStore,
    dsn: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    write: str,
    sqlstate: str,
) -> None:
    """I04: held and tried again, then kept in the spool, and taken in once the server takes writes again."""
    models = ScriptedModels(lambda asked: f"answer to {asked.prompt}")
    # What could not say that it ended keeps its lease until that lapses.
    settings = FlowSettings(ledger_patience=0.4, spool_dir=tmp_path, lease=LeaseRules(ttl=1.0, interval=0.25))
    task = make_task(ledger, store, request.node.name, models=models, settings=settings)
    key = request.node.name  # the effect's, which is the DAG's

    def body(f: Flow) -> tuple[str, str]:
        return f.llm("ask", "why"), f.effect("mail", record, "x", key=key, on_in_doubt="hold")

    with refusing(dsn, write, sqlstate), pytest.raises(LedgerUnavailableError, match="no room") as caught:
        task.run(body)
    assert any("in the spool" in note for note in caught.value.__notes__)
    assert len(list(tmp_path.glob("*.spool"))) == 1
    assert task.run(body) == ("answer to why", "x")
    assert (len(models.requests), CALLS) == (1, ["sent"])
    assert list(tmp_path.iterdir()) == []


IDS = ["a" * 250, "m__2026-01-01T00:00:00+00:00 \u00e9#?%2F", "..", "../../x", "a/b:c+d %00 \U0001f600"]


@pytest.mark.parametrize("odd", IDS)
def test_odd_ids_meet_each_other(ledger: PostgresLedger, store: S3ArtifactStore, odd: str) -> None:
    """C49, C50: two runs whose ids look alike after cleaning are two, and each resumes as itself."""
    twin = odd.replace("/", "_").replace(":", "_").replace("%", "_") + "_"
    first, second = (make_task(ledger, store, run_id[:250]) for run_id in (odd, twin[-250:]))
    for one in (first, second, first, second):
        one.run(lambda f: f.step("value", same, "v"))
        one.run(lambda f: f.effect("mail", record, "x"))
    assert CALLS.count("called") == 2
    assert CALLS.count("sent") == 2


def record(what: str) -> str:
    CALLS.append("sent")
    return what


def test_the_usage_total_drops_what_was_spent_before_the_checkpoint(
    ledger: PostgresLedger, store: S3ArtifactStore, request: pytest.FixtureRequest
) -> None:
    """C45: three calls, the second attempt resumes after two; the total is three."""
    asked: list[str] = []

    def answer(call: LlmRequest) -> str:
        asked.append(call.prompt)
        return call.prompt

    task = make_task(ledger, store, request.node.name, models=ScriptedModels(answer))

    def body(f: Flow) -> int:
        f.llm_map("page", ["a", "b"])
        if f.attempt == 1:
            raise RuntimeError("died here")
        f.llm("sum", "c")
        return f.spent.calls

    with pytest.raises(RuntimeError):
        task.run(body)
    assert task.run(body) == len(asked) == 3


def test_settings_reach_the_row_size(
    ledger: PostgresLedger, store: S3ArtifactStore, dsn: str, request: pytest.FixtureRequest
) -> None:
    task = make_task(ledger, store, request.node.name, settings=FlowSettings(inline_limit=10))
    assert task.run(lambda f: f.step("value", same, "more than ten bytes")) == "more than ten bytes"
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT result, result_sha256 FROM aiflow.step WHERE execution_id = %s", (_pk(task),)
        ).fetchone()
    assert row is not None
    assert row[0] is None
    assert row[1] is not None
