"""
Hand on the pieces of an answer while it is written: to the author's function, or as events.

The record is the whole answer, made after its end; pieces are for eyes, and a replay has none. They are handed on by a
thread of their own, for the thread that reads the answer reads those of all other calls too. What is written as an
event ends at a blank, so that a secret is masked whole. An answer that broke off begins anew: ``at`` is 0 again. With
the record of the whole the pieces go, and one event stands in their place.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from airflow_aiflow.durable.event_cursor import DELTA, DONE
from airflow_aiflow.durable.record import Instead
from airflow_aiflow.runtime.payloads import masked
from airflow_aiflow.runtime.session import Session

#: Seconds between two events of one answer: each is a commit.
EVENT_SECONDS = 0.5

#: Seconds that the end of an answer waits for the last pieces to be handed on.
END_SECONDS = 10.0

#: Characters after which a piece is handed on though no blank has come.
LONGEST_WORD = 2000


class Pieces:
    """
    Carry the pieces of one answer.

    :param session: the attempt at work.
    :param name: of the step.
    :param to: the author's function, called with each piece as it came; ``None``: events are written.
    :param written: takes the numbers of those events.
    """

    def __init__(
        self, session: Session, name: str, to: Callable[[str], object] | None, written: list[int] | None = None
    ) -> None:
        self._written = [] if written is None else written
        self._session = session
        self._name = name
        self._to = to
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._text = ""
        self._at = 0
        self._thread = threading.Thread(target=self._run, name="aiflow-pieces", daemon=True)
        self._thread.start()

    def put(self, text: str) -> None:
        """
        Take a piece; returns at once.

        :param text: what came.
        """
        self._queue.put(text)

    def close(self) -> None:
        """Hand the rest on."""
        self._queue.put(None)
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            if self._to is not None:
                while (text := self._queue.get()) is not None:
                    self._to(text)
                return
            while self._gather():
                self._emit(whole=False)
            self._emit(whole=True)
        except Exception as error:  # the answer is paid for, and is recorded whatever becomes of its pieces
            self._session.services.host.log(
                f"aiflow: the pieces of '{self._name}' are not handed on any more: {type(error).__name__}: {error}",
                warning=True,
            )

    def _gather(self) -> bool:
        """Wait for a piece, and a little for more; say whether more may come."""
        text = self._queue.get()
        clock = self._session.services.clock
        until = clock.monotonic() + EVENT_SECONDS
        while text is not None:
            self._text += text
            left = until - clock.monotonic()
            if left <= 0:
                return True
            try:
                text = self._queue.get(timeout=left)
            except queue.Empty:
                return True
        return False

    def _emit(self, *, whole: bool) -> None:
        end = len(self._text) if whole else max(self._text.rfind(" "), self._text.rfind("\n")) + 1
        if not whole and not end and len(self._text) > LONGEST_WORD:
            end = len(self._text)
        if not end:
            return
        piece, self._text = self._text[:end], self._text[end:]
        data = {"name": self._name, "at": self._at, "text": piece}
        self._at += end
        self._written.append(self._session.recorder.event(DELTA, masked(data, self._session.services.host.redact)))


def instead_of(name: str, written: list[int]) -> Instead | None:
    """
    Say what stands in the place of an answer's pieces once it is recorded.

    :param name: of the step.
    :param written: the numbers of the pieces' events.
    :return: ``None``: there were none.
    """
    return Instead(DONE, {"name": name, "pieces": len(written)}, tuple(written)) if written else None
