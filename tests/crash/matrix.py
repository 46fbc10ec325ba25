"""
The crash matrix: every crash site, every kind of unit, every way in which a task comes back.

    make crash-report                       all cells, measured beside expected
    make crash-report ARGS="--only hold"    those whose name holds a text
    make crash-report ARGS=--json           {"cells": N, "wrong": [...]} on the last line

Each cell is a forked process that makes its attempts as processes of their own: see ``life.py``. Expected values stand
in ``expected.txt``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from airflow_aiflow.local.objectstore import ObjectStoreServer
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from tests.crash import kinds
from tests.crash.expected import Cell, read_cells
from tests.crash.forks import Forks
from tests.crash.life import DONE, DOUBT, Life
from tests.crash.situations import SITUATIONS, word_given


@dataclass(frozen=True)
class Measured:
    """Hold what a cell gave."""

    cell: Cell
    value: str

    @property
    def right(self) -> bool:
        """Whether it is what is expected."""
        return self.value == self.cell.expected


def measure(cell: Cell, life: Life) -> str:
    """
    Play a cell and read what the outside saw.

    :param cell: which one.
    :param life: a fresh one of its kind.
    :return: in the table's notation, with what else is wrong behind it.
    """
    hit = kinds.HIT.get(cell.kind, "send")
    ends = ("before_finish", "after_finish")
    sites = [site if site in ends else f"{site}@{hit}" for site in cell.sites]
    code = SITUATIONS[cell.situation](life, sites)
    words = {DONE: "asked" if life.asked else "done", DOUBT: "doubt"}
    counts = (len(life.outside("computed")), len(life.outside("billed")), life.applied())
    value = f"{counts[0]}/{counts[1]}/{counts[2]}:{words.get(code, f'exit {code}')}"
    wrong, told = [], life.asked or code == DOUBT
    if code == DOUBT:
        code = word_given(life)
        if code != DONE or life.applied() != 1:
            wrong.append(f"after a person's word: exit {code}, applied {life.applied()}")
    if life.state() != "succeeded":
        wrong.append(f"the ledger says {life.state()}")
    right = [kinds.RESULT, kinds.RESULT | {"sent": None}] if told else [kinds.RESULT]
    if any(json.loads(line) not in right for line in life.outside("results")):
        wrong.append("a wrong result")
    return " ".join([value, *wrong])


def run_cells(cells: Sequence[Cell], folder: Path) -> list[Measured]:
    """
    Measure cells on servers of their own.

    :param cells: which.
    :param folder: for everything that they leave.
    """
    if any(cell.kind in ("once", "defers") for cell in cells):
        from tests.crash import once_kind  # noqa: F401  # imported before the forks, which have it then

    with PostgresServer(folder / "pg") as server, ObjectStoreServer(folder / "s3") as objects:
        dsn = server.fresh_database()
        upgrade(dsn)
        target = server.fresh_database()
        with psycopg.connect(target) as connection:
            connection.execute("create table sent (life text, target text)")
        store = {
            "endpoint": objects.endpoint,
            "access_key": objects.access_key,
            "secret_key": objects.secret_key,
            "bucket": objects.bucket(),
            "secure": False,
        }

        def play(cell: Cell, own: Path) -> str:
            return measure(cell, Life(own, dsn, store, cell.kind, own.name, target=target))

        return [Measured(each.job, each.value) for each in Forks(play, folder / "cells").run(cells)]


def sample(cells: Sequence[Cell], seed: int) -> list[Cell]:
    """
    Choose one situation for each row.

    :param cells: all of them.
    :param seed: of the choice.
    """
    chance = random.Random(seed)
    rows: dict[tuple[str, tuple[str, ...]], list[Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.kind, cell.sites), []).append(cell)
    return [chance.choice(row) for row in rows.values()]


def report(measured: Sequence[Measured]) -> str:
    """
    Lay out measured beside expected.

    :param measured: of all cells.
    """
    lines = [f"{'cell':<62}{'expected':<14}{'measured'}"]
    for each in measured:
        mark = "" if each.right else "   <- WRONG"
        lines.append(f"{each.cell.name:<62}{each.cell.expected:<14}{each.value}{mark}")
    return "\n".join(lines)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="make crash-report", description="Play the crash matrix.")
    parser.add_argument("--only", default="", help="cells whose name holds this text")
    parser.add_argument("--sample", action="store_true", help="one situation for each row")
    parser.add_argument("--seed", type=int, default=None, help="of the sample")
    parser.add_argument("--keep", action="store_true", help="keep what the cells left")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on the last line")
    arguments = parser.parse_args()
    cells = [cell for cell in read_cells() if arguments.only in cell.name]
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    if arguments.sample:
        cells = sample(cells, seed)
        print(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="aiflow-matrix-"))
    began = time.monotonic()
    try:
        measured = run_cells(cells, folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    order = {cell: place for place, cell in enumerate(cells)}
    measured.sort(key=lambda each: order[each.cell])
    print(report(measured))
    wrong = [each for each in measured if not each.right]
    print(f"{len(measured)} cells in {time.monotonic() - began:.0f} s, {len(wrong)} wrong")
    if arguments.keep:
        print(f"kept: {folder}")
    if arguments.json:
        found = [{"cell": each.cell.name, "expected": each.cell.expected, "measured": each.value} for each in wrong]
        print(json.dumps({"cells": len(measured), "wrong": found, "seed": seed if arguments.sample else None}))
    return 1 if wrong or not measured else 0


if __name__ == "__main__":
    sys.exit(main())
