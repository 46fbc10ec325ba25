"""The page on recovery shows the table of kinds as the code has it."""

from __future__ import annotations

from airflow_aiflow.durable.stall import KINDS
from tests.unit.source_tree import ROOT

PAGE = ROOT / "docs" / "operations" / "recovery.md"
HEAD = ("kind", "how it is recognised", "what recovery does", "Airflow 3.3 alone")


def table(head: tuple[str, ...], text: str) -> list[tuple[str, ...]]:
    """Give the rows below a head."""
    lines = text.splitlines()
    start = lines.index(f"| {' | '.join(head)} |") + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip() for cell in line.strip("|").split("|")))
    return rows


def kinds() -> list[tuple[str, ...]]:
    """Give the rows of the code."""
    return [(f"`{kind}`", row.sign, row.action, row.alone) for kind, row in KINDS.items()]


def test_page_and_code_have_the_same_kinds() -> None:
    assert table(HEAD, PAGE.read_text(encoding="utf-8")) == kinds()


def test_another_word_would_be_found() -> None:
    text = PAGE.read_text(encoding="utf-8")
    changed = text.replace("a second try runs beside it", "a second try waits for it")
    assert changed != text
    assert table(HEAD, changed) != kinds()
