"""The README is the project's face: short, its DAG small, its figures those that were measured."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.pages import README, blocks_of
from tests.unit.source_tree import ROOT
from tools import measured

TEXT = README.read_text(encoding="utf-8")


def test_it_is_read_in_one_sitting() -> None:
    assert len(TEXT.splitlines()) <= 220


def test_its_dag_has_under_forty_lines() -> None:
    [block] = [block for block in blocks_of(README) if block.language == "python"]
    assert block.kind == "dag"
    assert len(block.text.splitlines()) < 40


def test_it_begins_with_three_lines_and_the_two_commands() -> None:
    head = TEXT.split("## ")[0]
    paragraph = head.split("\n\n")[1]
    assert len(paragraph.splitlines()) == 3
    assert "make demo " in head
    assert "make test " in head


def committed_results() -> str | None:
    """Return the results that were committed: who runs `make bench` here must not be asked to change the README."""
    name = measured.RESULTS.relative_to(ROOT).as_posix()
    command = ["git", "-c", "safe.directory=*", "show", f"HEAD:{name}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return shown.stdout if shown.returncode == 0 else None


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git history here: nothing says what was committed")
@pytest.mark.parametrize("page", measured.PAGES)
def test_its_figures_are_those_that_were_measured(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    results = committed_results()
    if results is None:
        assert measured.EMPTY in text
    else:
        assert measured.filled(text, json.loads(results)) == text, "run: python tools/measured.py, and commit both"
