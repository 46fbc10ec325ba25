"""
Read the README and the pages of ``docs/`` as their tests see them: as blocks of code with a kind.

A Python block that stands under ``<!-- fragment -->`` is only compiled, one under ``<!-- signature: module:name -->``
is compared with that signature, one that makes a DAG is parsed and run by Airflow, and every other one is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.unit.source_tree import ROOT

README = ROOT / "README.md"
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*).*$")
_MARK = re.compile(r"<!-- (?P<mark>fragment|signature: \S+) -->")
_MAKES_A_DAG = re.compile(r"^@dag\b|\bDAG\(", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    path: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def kind(self) -> str:
        """What a test does with it: ``fragment``, ``signature``, ``dag`` or ``run``; for other languages empty."""
        if self.language != "python":
            return ""
        if self.mark:
            return self.mark.partition(":")[0]
        return "dag" if _MAKES_A_DAG.search(self.text) else "run"

    @property
    def label(self) -> str:
        """Where it stands, as a reader of a failure wants it."""
        return f"{self.path.relative_to(ROOT).as_posix()}:{self.line}"


def pages() -> list[Path]:
    """Return the README and every page, in a fixed order."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def blocks_of(path: Path) -> list[Block]:
    """Return the fenced blocks of one page."""
    found: list[Block] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    mark, position = "", 0
    while position < len(lines):
        line = lines[position]
        fence = _FENCE.match(line)
        if fence is None:
            # A mark holds for the block right under it.
            mark = match["mark"] if (match := _MARK.fullmatch(line.strip())) else ""
            position += 1
            continue
        end = lines.index(f"{fence['indent']}```", position + 1)
        body = [one.removeprefix(fence["indent"]) for one in lines[position + 1 : end]]
        found.append(Block(path, position + 1, fence["language"], "\n".join(body) + "\n", mark))
        mark, position = "", end + 1
    return found


def all_blocks(language: str = "python", kind: str | None = None) -> list[Block]:
    """
    Return the blocks of all pages.

    :param language: of the fence.
    :param kind: of the block; ``None``: any.
    """
    found = [block for path in pages() for block in blocks_of(path) if block.language == language]
    return [block for block in found if kind is None or block.kind == kind]
