"""A slice of `make demo-batch` without Airflow: real paragraphs, a real encoder, two kills, and a second night."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airflow_aiflow.demo.encoder import SentenceEncoder
from airflow_aiflow.demo.paragraphs import change, read_lines, read_paragraphs, split, write_lines
from airflow_aiflow.local.airflow_client import wait_for
from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from tests.artifact_world import S3ArtifactWorld

PARAGRAPHS, BATCH, IN_FLIGHT = 200, 8, 4
SEED = 20261130
#: Seconds; a batch takes a fraction of one.
PATIENCE = 120.0


@pytest.fixture(scope="module")
def told(postgres_server: PostgresServer, object_store: ObjectStoreServer) -> dict[str, Any]:
    database = postgres_server.fresh_database()
    upgrade(database)
    settings = S3ArtifactWorld(object_store).settings
    names = ("endpoint", "bucket", "access_key", "secret_key", "prefix", "secure", "region")
    return {"dsn": database, "store": {name: getattr(settings, name) for name in names}}


def embedded(counted: Path) -> int:
    return sum(map(int, counted.read_text().split())) if counted.exists() else 0


def start(told: dict[str, Any], number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.integration.demo.night_child", json.dumps(told | {"try": number})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_at(process: subprocess.Popen[str], counted: Path, number: int) -> None:
    """Kill a process once it has given the encoder so many paragraphs."""

    def is_there() -> bool:
        assert process.poll() is None, "it ended before its kill"
        return embedded(counted) >= number

    wait_for(lambda: is_there() or None, f"{number} paragraphs", PATIENCE)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.communicate()


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    given: dict[str, Any] = json.loads(out.splitlines()[-1])
    return given


def test_two_kills_repeat_what_was_in_flight_and_a_second_night_pays_for_three_percent(
    told: dict[str, Any], tmp_path: Path
) -> None:
    print("seed", SEED)
    paragraphs, _ = read_paragraphs()
    paragraphs = random.Random(SEED).sample([text for text in paragraphs if len(text) < 1500], PARAGRAPHS)
    lines, first, second = tmp_path / "paragraphs.jsonl", tmp_path / "calls-1", tmp_path / "calls-2"
    write_lines(lines, paragraphs)
    night = told | {"input": str(lines), "run_id": "night 1", "counted_in": str(first)}
    kill_at(start(night, 0), first, 40)
    kill_at(start(night, 1), first, 110)
    whole = finish(start(night, 2))
    repeated = embedded(first) - PARAGRAPHS
    print("embedded again", repeated)
    assert 0 <= repeated <= 2 * IN_FLIGHT * BATCH
    assert np.array(whole["vectors"]).shape == (PARAGRAPHS, 512)

    amended, changed = change(paragraphs, 0.03, SEED)
    write_lines(lines, amended)
    again = finish(start(told | {"input": str(lines), "run_id": "night 2", "counted_in": str(second)}, 0))
    assert (changed, embedded(second)) == (6, 6)
    of_first = dict(zip(paragraphs, whole["vectors"], strict=True))
    kept = [(row, of_first[text]) for text, row in zip(amended, again["vectors"], strict=True) if text in of_first]
    assert len(kept) == PARAGRAPHS - changed
    assert all(row == before for row, before in kept)
    assert any("reused" in line and "(run night 1" in line for line in again["log"])
    assert f"{PARAGRAPHS - changed} reused from earlier runs" in again["log"][-1]


def test_the_encoder_finds_what_means_the_same() -> None:
    given = ["The tenant pays the rent on the first day.", "Rent is due at the start of the month.", "Birds sing."]
    rows = SentenceEncoder().encode(given)
    alike = rows @ rows.T
    assert alike[0, 1] > alike[0, 2] + 0.2


def test_paragraphs_are_of_licences_and_documentation_and_each_is_there_once() -> None:
    paragraphs, texts = read_paragraphs()
    assert texts > 100
    assert len(paragraphs) == len(set(paragraphs)) > 2_000
    assert any("WARRANTY" in text for text in paragraphs)
    few, _ = read_paragraphs(10)
    assert few == paragraphs[:10]


def test_a_text_is_split_at_its_empty_lines() -> None:
    title, rule, first, second = (
        "A title\n=======",
        "---",
        "This is the first paragraph of all.",
        "The second\nhas two lines.",
    )
    text = f"{title}\n\n{first}\r\n  \r\n{second}\n\n{rule}\n"
    assert split(text) == [first, second]


def test_what_changes_depends_on_the_seed_alone(tmp_path: Path) -> None:
    paragraphs = [f"Paragraph number {n}." for n in range(100)]
    second, changed = change(paragraphs, 0.03, 1)
    assert (second, changed) == change(paragraphs, 0.03, 1)
    assert second != change(paragraphs, 0.03, 2)[0]
    assert changed == 3 == len(set(second) - set(paragraphs))
    assert change(paragraphs, 0, 1)[1] == 0
    assert change(paragraphs[:2], 0.03, 1)[1] == 1
    write_lines(tmp_path / "lines", ["a\nb", "ü\u2028"])
    assert read_lines(str(tmp_path / "lines")) == ["a\nb", "ü\u2028"]
