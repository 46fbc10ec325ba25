"""A list that is embedded by a process that is killed: what is paid again is what was in flight."""

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

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from tests.artifact_world import S3ArtifactWorld
from tests.crash.embed_child import vector

TEXTS, BATCH, WORKERS = 600, 20, 3


@pytest.fixture(scope="module")
def told(postgres_server: PostgresServer, object_store: ObjectStoreServer) -> dict[str, Any]:
    database = postgres_server.fresh_database()
    upgrade(database)
    settings = S3ArtifactWorld(object_store).settings
    names = ("endpoint", "bucket", "access_key", "secret_key", "prefix", "secure", "region")
    return {"dsn": database, "store": {name: getattr(settings, name) for name in names}}


def attempt(told: dict[str, Any], number: int, failpoint: str = "") -> tuple[int, Any]:
    """Run one attempt in a process of its own; give how it ended, and what it gave."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.crash.embed_child", json.dumps(told | {"try": number})],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | ({"AIFLOW_FAILPOINT": failpoint} if failpoint else {}),
    )
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return run.returncode, json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


@pytest.mark.parametrize(
    "failpoint",
    ["", "after_act@vectors:9", "after_artifact_put@vectors:9", "before_record@vectors:9", "after_record:150"],
)
def test_a_killed_list_repeats_no_more_than_what_was_in_flight(
    told: dict[str, Any], failpoint: str, tmp_path: Path
) -> None:
    texts = [f"Paragraph {number} of {tmp_path.name}" for number in range(TEXTS)]
    told = told | {
        "folder": str(tmp_path),
        "run_id": tmp_path.name,
        "texts": texts,
        "options": {"batch_size": BATCH, "max_workers": WORKERS},
    }
    assert attempt(told | ({} if failpoint else {"at": texts[400]}), 0, failpoint)[0] == -signal.SIGKILL
    before = len((tmp_path / "calls").read_text().splitlines())
    assert BATCH < before < TEXTS, "the kill was on the way"
    assert attempt(told, 1) == (0, [vector(text) for text in texts])
    made = Counter((tmp_path / "calls").read_text().splitlines())
    assert set(made) == set(texts)
    # What workers had in hand, and what they had handed over a moment ago.
    again = made.total() - TEXTS
    print("texts embedded again", again, "of", before)
    assert again <= 2 * WORKERS * BATCH
    assert max(made.values()) <= 2
