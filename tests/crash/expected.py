"""Read the table of expected values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("expected.txt")


@dataclass(frozen=True)
class Cell:
    """
    Be one cell of the matrix.

    :param kind: what is hit.
    :param sites: where, in order.
    :param situation: what comes then.
    :param expected: ``computed/billed/applied:end``.
    """

    kind: str
    sites: tuple[str, ...]
    situation: str
    expected: str

    @property
    def name(self) -> str:
        """Name it for people."""
        return f"{self.kind} {' > '.join(self.sites)} {self.situation}"


def read_cells(text: str | None = None) -> list[Cell]:
    """
    Read all cells.

    :param text: the table; ``None``: the file's.
    :raises ValueError: if a row does not fit its columns, or stands twice.
    """
    cells: list[Cell] = []
    kind, columns = "", list[str]()
    for line in (TABLE.read_text(encoding="utf-8") if text is None else text).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            kind, columns = line.strip("[] "), []
            continue
        if not columns:
            columns = line.split()
            continue
        values = line.split()[-len(columns) :]
        rows = line[: line.index(values[0])].split(",")
        if not all("/" in value for value in values):
            raise ValueError(f"a row of [{kind}] does not have {len(columns)} values: {line}")
        for row in rows:
            sites = tuple(site.strip() for site in row.split(">"))
            cells += [Cell(kind, sites, column, value) for column, value in zip(columns, values, strict=True)]
    names = [cell.name for cell in cells]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"cells that stand twice: {', '.join(sorted(twice))}")
    return cells
