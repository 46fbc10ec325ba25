"""A batch whose process is killed: in its calls, between its files, before and after its manifest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from minio import Minio
from minio.error import S3Error

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade

ITEMS, FILE_BYTES = 1_000, 20_000


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


@pytest.fixture
def told(dsn: str, object_store: ObjectStoreServer, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {
        "dsn": dsn,
        "folder": str(tmp_path),
        "run_id": request.node.name,
        "items": ITEMS,
        "file_bytes": FILE_BYTES,
        "s3": {
            "endpoint": object_store.endpoint,
            "bucket": object_store.bucket(),
            "access_key": object_store.access_key,
            "secret_key": object_store.secret_key,
            "secure": False,
        },
    }


def attempt(told: dict[str, Any], number: int, failpoint: str | None = None) -> dict[str, Any] | None:
    """Run one attempt in a process of its own; ``None``: it was killed."""
    environment = {**os.environ, **({} if failpoint is None else {"AIFLOW_FAILPOINT": failpoint})}
    run = subprocess.run(
        [sys.executable, "-m", "tests.crash.batch_child", json.dumps(told | {"try": number})],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return dict(json.loads(run.stdout.splitlines()[-1])) if run.returncode == 0 else None


def calls(told: dict[str, Any]) -> Counter[str]:
    return Counter((Path(told["folder"]) / "calls").read_text().splitlines())


def read(client: Minio, told: dict[str, Any], name: str) -> bytes:
    answer = client.get_object(told["s3"]["bucket"], f"night/{name}")
    try:
        return bytes(answer.read())
    finally:
        answer.close()
        answer.release_conn()


def results(client: Minio, told: dict[str, Any]) -> list[str] | None:
    """Read as a consumer does; ``None``: there is no result."""
    try:
        manifest = json.loads(read(client, told, "manifest.json"))
    except S3Error as error:
        if error.code != "NoSuchKey":
            raise
        return None
    rows = []
    for shard in manifest["shards"]:
        lines = [json.loads(line) for line in read(client, told, shard["name"]).splitlines()]
        assert len(lines) == shard["items"]
        rows += lines
    assert len(rows) == manifest["items"]
    assert [row["item"] for row in rows] == list(range(len(rows)))
    assert all(row["result"].startswith(f"about item {row['key']}: ") for row in rows)
    return [row["key"] for row in rows]


def names(client: Minio, told: dict[str, Any]) -> set[str]:
    found = client.list_objects(told["s3"]["bucket"], prefix="night/")
    return {str(each.object_name).removeprefix("night/") for each in found}


def test_a_kill_in_the_calls_costs_one_flush(told: dict[str, Any], object_store: ObjectStoreServer) -> None:
    client = object_store.client()
    told["at"] = f"item {ITEMS * 8 // 10}"
    assert attempt(told, 0) is None
    assert results(client, told) is None, "half a result is none"
    given = attempt(told, 1)
    assert given is not None
    assert given["items"] == ITEMS
    assert results(client, told) == [str(n) for n in range(ITEMS)]
    again = calls(told).total() - ITEMS
    assert 0 < again <= 100 + 8 * 2 + 8, "what was uncommitted, and what was in hand"


@pytest.mark.parametrize("site", ["after_shard:1", "after_shard:3", "before_manifest", "after_manifest"])
def test_a_kill_between_the_files_and_the_manifest_costs_no_call(
    told: dict[str, Any], object_store: ObjectStoreServer, site: str
) -> None:
    client = object_store.client()
    assert attempt(told, 0, site) is None
    assert (results(client, told) is not None) == (site == "after_manifest")
    left = names(client, told)
    assert left, "files are there, and nobody is told of them"
    made = calls(told).total()
    given = attempt(told, 1)
    assert given is not None
    assert results(client, told) == [str(n) for n in range(ITEMS)]
    if not site.startswith("after_shard"):
        assert calls(told).total() == made == ITEMS
    assert left <= names(client, told), "a retry writes the same files"
    assert len(names(client, told)) == given["shards"] + 1


def test_a_reader_meets_the_old_result_or_the_new_one(told: dict[str, Any], object_store: ObjectStoreServer) -> None:
    client = object_store.client()
    assert attempt(told, 0) is not None
    shorter = told | {"items": ITEMS // 2, "run_id": f"{told['run_id']} next"}
    assert attempt(shorter, 0, "before_manifest") is None
    assert results(client, told) == [str(n) for n in range(ITEMS)], "the old one, whole"
    assert attempt(shorter, 1) is not None
    assert results(client, told) == [str(n) for n in range(ITEMS // 2)], "the new one, and none of the old files"
