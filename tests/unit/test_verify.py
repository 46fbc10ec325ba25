"""The model of the protocol: true to the statements, and each small run of it gives what it must."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

import pytest

from tools.verify import FAILS, HOLDS, MODEL, PROPERTIES, STATEMENTS, Result, Run, check_all, mapped, read, seal, table

needs_spin = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None,
    reason="the model checker is not installed: apt-get install spin gcc libc6-dev",
)

#: Statements that change the rows which the model is about, and have no block: README.md of verify/ says why.
WITHOUT_BLOCK = {
    "let_go.sql",
    "beat.sql",
    "want.sql",
    "leave.sql",
    "heard.sql",
    "release_held.sql",
    "compensated.sql",
    "answer.sql",
    "recovery_abandon.sql",
    "renew.sql",
    "lapse.sql",
    "clean_rest.sql",
    "clean_effects_remove.sql",
}


def test_each_statement_is_as_the_model_was_compared_with_it() -> None:
    moved = [
        f"{file} (block {block})"
        for file, (block, sealed) in mapped().items()
        if seal((STATEMENTS / file).read_text(encoding="utf-8")) != sealed
    ]
    assert not moved, (
        f"changed since the model was compared with them: {', '.join(moved)}. Compare verify/protocol.pml with them, "
        f"mend it where it is no longer true, run make verify, then make verify ARGS=--accept"
    )


def test_the_map_is_complete() -> None:
    blocks = set(re.findall(r"/\* STATEMENT (\w+)", MODEL.read_text(encoding="utf-8")))
    assert {block for block, _ in mapped().values()} == blocks
    changing = re.compile(r"(insert into|update|delete from) aiflow\.(execution|lease|effect|intent|question)\b")
    writers = {path.name for path in STATEMENTS.glob("*.sql") if changing.search(path.read_text(encoding="utf-8"))}
    assert writers - set(mapped()) <= WITHOUT_BLOCK, "a statement that changes the protocol's rows is not in the map"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("select 1", "select  1\n-- why\n", True),
        ("select 1 -- a", "select 1 -- b", True),
        ("select 1", "select 2", False),
    ],
)
def test_a_seal_is_over_what_a_statement_does(first: str, second: str, *, same: bool) -> None:
    assert (seal(first) == seal(second)) is same


HELD = "\t 1519501 states, stored\nState-vector 80 byte, depth reached 134, errors: 0\n"
BROKEN = "pan:1: assertion violated (fence==f) (at depth 40)\nState-vector 80 byte, errors: 1\n 5752 states, stored\n"


@pytest.mark.parametrize(
    ("breaks", "output", "right"),
    [
        (None, HELD, True),
        ("P5", BROKEN, True),
        ("P3", BROKEN, False),
        (None, BROKEN, False),
        ("P5", HELD, False),
        (None, "pan: reached -DMEMLIM bound\n" + HELD, False),
        (None, "error: max search depth too small\n" + HELD, False),
        (None, "", False),
    ],
)
def test_a_report_is_read_by_what_it_says(breaks: str | None, output: str, *, right: bool) -> None:
    result = read(Run("x", (), breaks), output, 0.0)
    assert result.right is right
    assert ("WRONG" in table([result])) is not right


def test_each_safeguard_has_its_run() -> None:
    broken = {run.breaks for run in FAILS}
    assert broken == set(PROPERTIES) - {"P1"}  # P1 is guarded three times: no single safeguard's loss breaks it
    assert {run.flags[0] for run in HOLDS} == {f"POLICY={number}" for number in range(4)}


@needs_spin
def test_the_small_runs_give_what_they_must() -> None:
    results: Sequence[Result] = check_all(quick=True)
    assert all(each.right for each in results), table(list(results))
    assert {each.run.breaks is None for each in results} == {True, False}
