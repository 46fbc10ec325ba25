"""
End an attempt whose call does not come back: its deadline is long over, and no signal helped.

Nothing new starts, what else is in hand is brought to its record, and then the process ends, with the stacks of all
threads in its log. Where the host can, the task is handed back and burns no retry; the call's effect, if it is one, is
in doubt. A call that returns meanwhile leaves the attempt to go its own way to its end.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Collection

from airflow_aiflow.durable.ports import Clock, Host
from airflow_aiflow.runtime.deadline import Deadlines
from airflow_aiflow.runtime.gate import Gate
from airflow_aiflow.runtime.heartbeat import RECORD_SECONDS, WATCH_SECONDS

#: Frames of a thread that are shown, from the innermost: a library's own depth is not worth more lines.
MOST_FRAMES = 30


class Overrun:
    """
    Be called when a call is overrun.

    :param patience: seconds that what else is in hand gets, where it names no timeout.
    :param back_in: seconds after which the task comes back.
    :param pause: writes into the ledger that the attempt is paused, and why; ``False``: another one took over.
    """

    def __init__(
        self,
        gate: Gate,
        host: Host,
        clock: Clock,
        *,
        patience: float,
        back_in: float,
        pause: Callable[[str], bool],
    ) -> None:
        self._gate = gate
        self._host = host
        self._clock = clock
        self._patience = patience
        self._back_in = back_in
        self._pause = pause
        self._deadlines: Deadlines | None = None
        self._begun = False
        self._lock = threading.Lock()
        self._closed = False

    def watch(self, deadlines: Deadlines) -> None:
        """
        Say who knows which calls are overrun.

        :param deadlines: the attempt's.
        """
        self._deadlines = deadlines

    def begin(self, why: str) -> None:
        """
        End the attempt, from a thread of its own. Returns at once; a second call changes nothing.

        :param why: for the log and the ledger.
        """
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._run, args=(why,), name="aiflow-overrun", daemon=True).start()

    def close(self) -> None:
        """End nothing any more: the attempt writes its own end."""
        with self._lock:
            self._closed = True

    def _run(self, why: str) -> None:
        assert self._deadlines is not None
        self._gate.shut(self._back_in, why)
        shown = stacks(self._deadlines.stuck)
        self._host.log(f"aiflow: {why}, and no signal helped: nothing new starts. All threads:\n{shown}", warning=True)
        began = self._clock.monotonic()
        while self._gate.busy_beside(self._deadlines.stuck) and self._clock.monotonic() < self._until(began):
            if self._closed:
                return
            self._clock.wait(WATCH_SECONDS)
        with self._lock:
            if self._closed:
                return
            if not self._deadlines.stuck:
                self._begun = False  # it came back; what is overrun next is another call
                return
            self._end(why)

    def _until(self, began: float) -> float:
        return max(began + self._patience, self._gate.in_hand_until + RECORD_SECONDS)

    def _end(self, why: str) -> None:
        if self._gate.superseded is not None:
            return  # the heartbeat ends this process, and nothing may be reported
        back_in, ours = None, True
        if self._host.may_come_back:
            with contextlib.suppress(Exception):  # whatever it is: then this end counts as a death
                ours = self._pause(why)
                back_in = self._back_in
        self._host.end_process(why, superseded=not ours, back_in=back_in)


def stacks(first: Collection[int]) -> str:
    """
    Give where every thread of this process is, this one left out, as text.

    :param first: the threads that come first, by their identifiers.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] not in first)
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)[-MOST_FRAMES:])}"
        for ident, frame in frames
        if ident != threading.get_ident()
    )
