"""A bar that moves in place on a terminal; elsewhere each of its states is a line, as a log wants it."""

from __future__ import annotations

import sys
from typing import Any, TextIO

#: Characters of a progress bar.
BAR = 30

#: Back to the line's beginning, and empty it.
ANEW = "\r\x1b[2K"


class Lines:
    """
    Print lines, and a bar below them.

    :param out: to where; ``None``: to standard error.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._moves = self._out.isatty()
        self._bar = ""

    def line(self, text: str) -> None:
        """
        Print a line for good; a bar stays below it.

        :param text: of one line.
        """
        text = harmless(text)
        self._write(f"{ANEW}{text}\n{self._bar}" if self._bar else f"{text}\n")

    def bar(self, done: Any, total: Any, message: str) -> None:
        """
        Show how far it is.

        :param done: units of work, as somebody said it.
        :param total: all of them; ``None``: not known.
        :param message: of whom does them.
        """
        text = harmless(f"  {drawn(done, total)} {message}".rstrip())
        if self._moves:
            self._bar = text
            self._write(ANEW + text)
        else:
            self._write(f"{text}\n")

    def close(self) -> None:
        """Leave the last bar where it is, on a line of its own."""
        if self._bar:
            self._bar = ""
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def harmless(text: str) -> str:
    """
    Take out what a terminal would obey: whoever wrote it may be a model.

    :param text: of anybody.
    """
    return "".join(each if each.isprintable() else " " for each in text)


def drawn(done: Any, total: Any) -> str:
    """
    Draw a bar.

    :param done: units of work, as somebody said it.
    :param total: all of them.
    """
    if not isinstance(done, int) or not isinstance(total, int) or total <= 0:
        return f"{done}"
    full = round(BAR * min(1.0, max(0.0, done / total)))
    return f"[{'#' * full}{'.' * (BAR - full)}] {done}/{total}"
