"""The README is the project's face: short, its DAG small, its figures those that were measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pages import README, blocks_of
from tests.unit.source_tree import ROOT
from tools import measured

TEXT = README.read_text(encoding="utf-8")


def test_it_is_read_in_one_sitting() -> None:
    assert len(TEXT.splitlines()) <= 220


def test_its_dag_has_under_forty_lines() -> None:
    block, *_ = [block for block in blocks_of(README) if block.language == "python"]
    assert block.kind == "dag"
    assert len(block.text.splitlines()) < 40


def test_it_begins_with_three_lines_and_the_two_commands() -> None:
    head = TEXT.split("## ")[0]
    paragraph = head.split("\n\n")[1]
    assert len(paragraph.splitlines()) == 3
    assert "make demo " in head
    assert "make test " in head


def committed(path: Path) -> Any:
    """Return a file's object as it was committed: who runs `make bench` here must not be asked to change the README."""
    command = ["git", "-c", "safe.directory=*", "show", f"HEAD:{path.relative_to(ROOT).as_posix()}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return json.loads(shown.stdout) if shown.returncode == 0 else None


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git history here: nothing says what was committed")
@pytest.mark.parametrize("page", measured.PAGES)
def test_its_figures_are_those_that_were_measured(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    results = committed(measured.RESULTS)
    if results is None:
        assert measured.EMPTY in text
    else:
        wanted = measured.filled(text, results, committed(measured.DEMO))
        assert wanted == text, "run: python tools/measured.py, and commit both"


def test_the_table_is_written_from_the_results() -> None:
    times = {name: {"median": 0.25, "p95": 0.5} for name in ("bare", "autocommit", "step", "effect")}
    results = {
        "step_ratio": 1.234,
        "effect_ratio": 2.345,
        "step_autocommit_ratio": 1.5,
        "effect_autocommit_ratio": 3.25,
        "resume_ratio": 1.9,
        "resume_memory_mib": 14.2,
        "dbos_step_ratio": None,
        "parse_modules": 12,
        "times_ms": times,
        "versions": {"python": "3.11.7", "apache-airflow": "3.3.2", "psycopg": "3.3.9"},
    }
    demo: dict[str, Any] = {
        "documents": 3,
        "pages": 9,
        "kills": 4,
        "calls_needed": 12,
        "calls_made": 13,
        "calls_plain": 20,
    }
    demo |= {"emails": 1, "records": 1, "seconds_lost": 3.65}
    written = measured.filled(TEXT, results, demo)
    assert "| a recorded step over a bare one-row INSERT and its COMMIT | 1.23 | at most 1.5 |" in written
    assert "killed 4 times:\n12 model calls needed, 13 made (20 without" in written
    assert "DBOS" not in written.partition("## What it costs")[2]
    assert measured.filled(written, results, demo) == written
    with pytest.raises(SystemExit, match="one is wanted"):
        measured.filled("no place", results, demo)
