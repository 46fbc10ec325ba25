"""With payload_keys, what a run stores holds no content in clear: not in a row, not in an object, not on disk."""

from __future__ import annotations

import contextlib
import re
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import zstandard
from cryptography.fernet import Fernet

from airflow_aiflow.durable.record import Usage
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing import DurableTask

#: A word that no program of ours writes by itself.
CONTENT = "Grzegorz-Brzeczyszczykiewicz"
LARGE = 40_000

#: Begins every compressed frame.
ZSTD = b"\x28\xb5\x2f\xfd"


class Models:
    """Answer with the content."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Answer."""
        return LlmAnswer(f"{request.prompt}!", Usage(model="m", response_id="r", tokens_in=1, tokens_out=1))

    def close(self) -> None:
        """Keep nothing open."""


def large(text: str) -> str:
    return text * LARGE


def send(ctx: EffectContext, to: str) -> str:
    return f"sent to {to}"


def body(flow: Flow) -> tuple[int, str, str]:
    size = len(flow.step("large", large, CONTENT))
    answer = flow.llm("ask", CONTENT)
    flow.emit("found", who=CONTENT)
    return size, answer, flow.effect("send", send, CONTENT, key="one")


def everything_in(dsn: str) -> bytes:
    """Give every row of the ledger, as PostgreSQL stores it."""
    rows = bytearray()
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'aiflow'"
        ).fetchall()
        assert len(tables) > 5
        for (table,) in tables:
            with connection.cursor().copy(f"copy {table} to stdout (format binary)".encode()) as copy:
                for block in copy:
                    rows += block
    return bytes(rows)


def everything_at(store: ObjectStoreServer, bucket: str) -> bytes:
    """Give every object of a bucket, opened where it is compressed."""
    found = bytearray()
    for item in store.client().list_objects(bucket, recursive=True):
        response = store.client().get_object(bucket, str(item.object_name))
        data = response.read()
        response.close()
        found += data
        for start in (place.start() for place in re.finditer(re.escape(ZSTD), data)):
            with contextlib.suppress(zstandard.ZstdError):
                found += zstandard.ZstdDecompressor().decompress(data[start:], max_output_size=10**8)
    return bytes(found)


@pytest.mark.parametrize("keys", [(), (Fernet.generate_key(),)], ids=["in clear", "encrypted"])
def test_where_the_content_is_found(
    keys: tuple[bytes, ...], postgres_server: PostgresServer, object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    bucket = object_store.bucket()
    store = S3ArtifactStore(
        S3Settings(
            endpoint=object_store.endpoint,
            bucket=bucket,
            access_key=object_store.access_key,
            secret_key=object_store.secret_key,
            secure=False,
        )
    )
    task = DurableTask(
        ledger=(ledger := PostgresLedger.connect(dsn)),
        store=store,
        models=Models(),
        clock=SystemClock(),
        settings=FlowSettings(spool_dir=tmp_path, payload_keys=keys),
    )
    with closing(ledger), closing(store):
        expected = (len(CONTENT) * LARGE, f"{CONTENT}!", f"sent to {CONTENT}")
        assert task.run(body) == expected
        assert task.run(body) == expected
    word = CONTENT.encode()
    # The first case proves that this search would find it.
    assert (word in everything_in(dsn)) is (not keys)
    assert (word in everything_at(object_store, bucket)) is (not keys)
