"""A quick slice of the crash matrix, and that its table is read as it is written."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from airflow_aiflow.durable import failpoint
from tests.crash import kinds
from tests.crash.expected import read_cells
from tests.crash.matrix import Measured, report
from tests.crash.situations import SITUATIONS

CELLS = read_cells()


def test_each_cell_of_a_row_stands_in_the_table() -> None:
    assert {cell.kind for cell in CELLS} == set(kinds.UNITS)
    rows = {(cell.kind, cell.sites) for cell in CELLS}
    assert len(CELLS) == len(rows) * len(SITUATIONS)
    assert {cell.situation for cell in CELLS} == set(SITUATIONS)


def test_each_crash_site_is_in_the_table() -> None:
    assert {site for cell in CELLS for site in cell.sites} == failpoint.NAMES


@pytest.mark.parametrize("text", ["[a]\nretry other\nsite 1/1/1:done\n", "[a]\nretry\nb, b 1/1/1:done\n"])
def test_a_table_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"does not have|stand twice"):
        read_cells(text)


def test_a_cell_that_is_not_as_expected_is_shown() -> None:
    assert "WRONG" in report([Measured(CELLS[0], "9/9/9:done")])
    assert "WRONG" not in report([Measured(CELLS[0], CELLS[0].expected)])


@pytest.mark.slow
def test_one_cell_of_each_row() -> None:
    """In a program of its own: it forks, and wants neither pytest's threads nor its files."""
    seed = random.SystemRandom().randrange(1_000_000)
    played = subprocess.run(
        [sys.executable, "-m", "tests.crash.matrix", "--sample", "--seed", str(seed), "--json"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert played.returncode == 0, f"seed {seed}\n{played.stdout}\n{played.stderr[-2000:]}"
    found = json.loads(played.stdout.splitlines()[-1])
    assert found == {"cells": len({(cell.kind, cell.sites) for cell in CELLS}), "wrong": [], "seed": seed}
