"""A map whose process is killed: what runs again is at most one flush, and an item that kills is left out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade

ITEMS, AT, BATCH, WORKERS = 3_000, 2_500, 100, 8


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer) -> str:
    database = postgres_server.fresh_database()
    upgrade(database)
    return database


def attempt(told: dict[str, Any], number: int) -> tuple[int, Any]:
    """Run one attempt in a process of its own; give how it ended, and what it gave."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.crash.map_child", json.dumps(told | {"try": number})],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode in (0, -signal.SIGKILL), run.stderr
    return run.returncode, json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def calls(folder: Path) -> Counter[int]:
    return Counter(map(int, (folder / "calls").read_text().split()))


def test_a_killed_map_makes_no_more_calls_again_than_one_flush(dsn: str, tmp_path: Path) -> None:
    told = {
        "dsn": dsn,
        "folder": str(tmp_path),
        "run_id": "killed",
        "items": ITEMS,
        "at": AT,
        "options": {"batch_commit": BATCH, "max_workers": WORKERS},
    }
    assert attempt(told, 0)[0] == -signal.SIGKILL
    made = calls(tmp_path)
    assert AT - 1000 < made.total() < ITEMS, "the kill was near the end"
    assert attempt(told, 1) == (0, [n * 2 for n in range(ITEMS)])
    again = calls(tmp_path).total() - ITEMS
    print("calls made again", again)
    assert 0 < again <= BATCH + WORKERS, "uncommitted results, and what was in hand"
    assert max(calls(tmp_path).values()) == 2


def test_an_item_that_kills_its_process_is_left_out_after_two_losses_that_are_its_own(dsn: str, tmp_path: Path) -> None:
    told = {
        "dsn": dsn,
        "folder": str(tmp_path),
        "run_id": "poison",
        "items": 40,
        "killer": 17,
        "options": {"on_item_error": "skip", "max_workers": 4},
    }
    for number in range(3):
        assert attempt(told, number)[0] == -signal.SIGKILL
    assert attempt(told, 3) == (0, [None if n == 17 else n * 2 for n in range(40)])
    made = calls(tmp_path)
    assert made[17] == 3
    assert all(made[n] <= 3 for n in range(40))
