"""`aiflow demo-batch` as a person runs it: a real Airflow, a real encoder, two SIGKILLs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.airflow.test_demo import home, left_running  # noqa: F401  # the fixture

#: Seconds; a quiet machine needs a minute.
PATIENCE = 400.0
PARAGRAPHS, BATCH, CHANGED = 900, 16, 27


@pytest.mark.timeout(PATIENCE + 60)
def test_two_kills_lose_what_was_in_flight_and_a_second_night_pays_for_three_percent(
    home: Path,  # noqa: F811
) -> None:
    command = [sys.executable, "-m", "airflow_aiflow.cli", "demo-batch", "--json", "--home", str(home)]
    command += ["--limit", str(PARAGRAPHS), "--batch-size", str(BATCH)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=home.parent, timeout=PATIENCE)
    print(ran.stderr)
    [line] = ran.stdout.splitlines()
    facts = json.loads(line)
    assert facts["broken"] == []
    assert ran.returncode == 0
    assert (facts["items"], facts["kills"], facts["changed"]) == (PARAGRAPHS, 2, CHANGED)
    assert PARAGRAPHS <= facts["calls_first_night"] <= PARAGRAPHS + 2 * 4 * BATCH
    assert facts["calls_second_night"] == CHANGED
    assert facts["batches_second_night"] == 2
    assert facts["reused"] == PARAGRAPHS - CHANGED
    first, second = facts["nights"]
    assert (first["attempts"], second["attempts"]) == (3, 1)
    assert second["reused_from"] == {first["run_id"]: PARAGRAPHS - CHANGED}
    table = pa.ipc.open_file(Path(second["vectors"]).read_bytes()).read_all()
    assert (table.num_rows, table.schema.field("vector").type.list_size) == (PARAGRAPHS, 512)
    assert "reused" in ran.stderr
    assert left_running(home) == []
