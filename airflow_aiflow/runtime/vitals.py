"""
What an attempt leaves for its guard: a few numbers and the name of the step in hand, in a page of shared memory,
written without a system call.

Each number is one aligned double, so that no reader sees half of it. The name is read after the writer's death alone.
Where there is no guard the page is private, and the writers need not know.
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import Self

#: Places in the shared page, each a double.
STATE, BEAT_AT, IN_HAND_UNTIL, CALL_DUE = range(4)
PAGE_BYTES = 4096

#: Where the name of the step in hand stands: a byte for each of the two parts of its length, then the name.
STEP_AT = 64

#: Most bytes of a name: a longer one is cut.
STEP_BYTES = 1024

#: Values of ``STATE``: at work; writing its own end, after which the lease may be gone; ended, no guard is needed.
AT_WORK, ENDING, ENDED = 0.0, 1.0, 2.0

#: Value of ``IN_HAND_UNTIL`` where nothing is in hand.
NOTHING = -1.0


class Vitals:
    """
    Write the page.

    :param page: at least ``PAGE_BYTES``, writable.
    :param descriptor: of the shared memory; ``None``: it is private.
    """

    def __init__(self, page: bytearray | mmap.mmap, descriptor: int | None = None) -> None:
        self._bytes = memoryview(page)
        self._step: str | None = None
        self._page = self._bytes.cast("d")
        self._page[STATE], self._page[IN_HAND_UNTIL] = AT_WORK, NOTHING
        self._lock = threading.Lock()
        self._due: dict[object, float] = {}
        self.descriptor = descriptor

    @classmethod
    def private(cls) -> Self:
        """Make a page that nobody reads."""
        return cls(bytearray(PAGE_BYTES))

    @classmethod
    def shared(cls) -> Self:
        """
        Make a page for a guard; its descriptor is closed by who hands it on.

        :raises OSError: if the system gives no memory.
        """
        descriptor = os.memfd_create("aiflow-vitals")
        os.ftruncate(descriptor, PAGE_BYTES)
        return cls(mmap.mmap(descriptor, PAGE_BYTES), descriptor)

    def beaten(self, at: float) -> None:
        """
        Note a heartbeat that the ledger took.

        :param at: when it was sent, in seconds since boot.
        """
        self._page[BEAT_AT] = at

    def in_hand(self, until: float | None, step: str | None = None) -> None:
        """
        Note what is in hand.

        :param until: the moment, since boot, until which its own timeouts let it be; ``None``: nothing is in hand.
        :param step: its name; ``None``: none has one.
        """
        if step != self._step:
            self._step = step
            name = b"" if step is None else step.encode("utf-8", "replace")[:STEP_BYTES]
            self._bytes[STEP_AT + 2 : STEP_AT + 2 + len(name)] = name
            self._bytes[STEP_AT : STEP_AT + 2] = len(name).to_bytes(2, "little")
        self._page[IN_HAND_UNTIL] = NOTHING if until is None else until

    def calls(self, call: object, due: float) -> None:
        """
        Note a call that has a deadline.

        :param call: names it.
        :param due: a moment of ``time.monotonic``.
        """
        with self._lock:
            self._due[call] = due
            self._page[CALL_DUE] = min(self._due.values())

    def returned(self, call: object) -> None:
        """
        Note that a call is over, however; or that it is ended by this process itself.

        :param call: as named before.
        """
        with self._lock:
            self._due.pop(call, None)
            self._page[CALL_DUE] = min(self._due.values(), default=0.0)

    def ending(self) -> None:
        """Note that the attempt writes its own end: its lease may be gone from here on."""
        self._page[STATE] = ENDING

    def ended(self) -> None:
        """Note that no guard is needed any more."""
        self._page[STATE] = ENDED


def step_of(page: memoryview) -> str | None:
    """
    Read which step a dead process had in hand.

    :param page: as bytes.
    :return: ``None``: none.
    """
    length = int.from_bytes(page[STEP_AT : STEP_AT + 2], "little")
    name = bytes(page[STEP_AT + 2 : STEP_AT + 2 + min(length, STEP_BYTES)])
    return name.decode("utf-8", "ignore") or None
