"""A bar moves in place on a terminal, and is a line elsewhere."""

from __future__ import annotations

import io

import pytest

from airflow_aiflow.cli.progress_bar import Lines, drawn


class Terminal(io.StringIO):
    """Show what somebody sees: what is written over is gone."""

    def isatty(self) -> bool:
        return True

    def seen(self) -> list[str]:
        return [line.rpartition("\x1b[2K")[2] for line in self.getvalue().split("\n")]


def played(out: io.StringIO) -> None:
    lines = Lines(out)
    lines.line("running")
    for done in range(3):
        lines.bar(done, 2, f"page {done}")
    lines.line("  run: step read")
    lines.close()
    lines.line("succeeded")


def test_on_a_terminal_there_is_one_bar_below_the_lines() -> None:
    out = Terminal()
    played(out)
    assert out.seen() == ["running", "  run: step read", f"  [{'#' * 30}] 2/2 page 2", "succeeded", ""]


def test_in_a_log_each_state_is_a_line() -> None:
    out = io.StringIO()
    played(out)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().splitlines()[1:3] == [f"  [{'.' * 30}] 0/2 page 0", f"  [{'#' * 15}{'.' * 15}] 1/2 page 1"]


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_what_a_terminal_would_obey_is_not_written(out: io.StringIO) -> None:
    lines = Lines(out)
    lines.bar(1, 2, "\x1b[2J\x07gone\nand more")
    lines.line("\x1b]0;title\x07")
    assert "\x1b[2J" not in out.getvalue()
    assert "\x1b]" not in out.getvalue()
    assert "\x07" not in out.getvalue()


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [(5, None, "5"), (None, 3, "None"), (7, 2, f"[{'#' * 30}] 7/2"), (-1, 2, f"[{'.' * 30}] -1/2"), (1, 0, "1")],
)
def test_odd_numbers_are_shown_as_they_are(done: int | None, total: int | None, text: str) -> None:
    assert drawn(done, total) == text
