"""
The guard: a small process beside an attempt, for what the attempt's own threads can't do.

``runtime/guard.py`` starts it. It renews the lease while the task process lives and its heartbeat thread does not get
to run; it freezes and ends a process that lost its lease, or hangs over a deadline, and can't end itself; and when the
task process dies it ends the processes that were left and lets the lease lapse. A live lease is all that it can give:
the ledger's statement refuses it where the attempt has ended or another one took over.

It runs isolated on the standard library and three modules of ours, and loads the driver when the ledger is first to be
asked: beside a healthy attempt it costs ten megabytes and some microseconds every few seconds. Its main thread never
waits for the ledger, so that a death is seen at once.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from airflow_aiflow.runtime.guard_ledger import GuardLedger
from airflow_aiflow.runtime.left_over import end_left_over
from airflow_aiflow.runtime.living import Process
from airflow_aiflow.runtime.vitals import (
    AT_WORK,
    BEAT_AT,
    CALL_DUE,
    ENDED,
    IN_HAND_UNTIL,
    NOTHING,
    PAGE_BYTES,
    STATE,
    step_of,
)

#: Longest time between two looks, in seconds: a look costs some tens of microseconds.
LOOK_SECONDS = 5.0

#: Seconds that a process gets to write its stacks and die of that signal.
DUMP_SECONDS = 5.0

#: Longest life of the guard after its task's death, whatever the ledger does.
REST_SECONDS = 15.0


def since_boot() -> float:
    """Give seconds since boot, time asleep included, as the attempt's own clock does."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Guard:
    """
    Watch one attempt.

    :param plan: what ``runtime/guard.py`` wrote.
    :param page: the shared numbers.
    :param word: readable when the attempt says something, or has closed its end.
    """

    def __init__(self, plan: dict[str, Any], page: memoryview[float], word: int) -> None:
        self._plan = plan
        self._page = page
        self._word: int | None = word
        self._task = Process(plan["pid"], plan["start"])
        self._ledger = GuardLedger(plan)
        self._ttl: float = plan["ttl"]
        self._interval: float = plan["interval"]
        #: Age of the last heartbeat from which on the guard beats: more than a beat that is a little late.
        self._late: float = max(self._ttl / 2, 1.25 * self._interval)
        self._renewed_at: float = 0.0
        self._asked_at = 0.0
        #: Whether the ledger knows the lease no more: given back, or another attempt's.
        self._gone = False
        self._superseded_at: float | None = None
        self._hangs_since: float | None = None
        self._told = False

    def run(self) -> None:
        """Watch until the attempt has ended or its process is dead."""
        poll = select.poll()
        for descriptor in (self._word, self._task.descriptor):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        while True:
            # First: the attempt may be over before this process has begun.
            if self._page[STATE] == ENDED:
                return
            state = self._task.state()
            if state is None:
                self._after_death()
                return
            if self._orphaned():
                say("this task's supervisor is dead: its guard ends the task, which would go on beside the next try")
                self._task.send(signal.SIGKILL)
                self._task.becomes("", DUMP_SECONDS)
                continue
            if state in ("T", "t"):
                # Stopped: it may not keep its lease, and the time that it is stopped for is no hanging.
                self._hangs_since = None
            else:
                self._keep_lease()
                self._end_superseded()
                self._end_hanging()
            for descriptor, _ in poll.poll(self._pause() * 1000):
                if descriptor == self._word and not os.read(descriptor, 64):
                    poll.unregister(descriptor)  # closed by what the author runs: the page and /proc still tell

    def _orphaned(self) -> bool:
        """Say whether its parent is another one than at the start, for what the kernel did not end with its parent."""
        parent = self._task.parent()
        return parent is not None and parent != self._plan["parent"]

    def _pause(self) -> float:
        """Give the seconds until the next look."""
        limit: float = min(LOOK_SECONDS, self._ttl / 6)
        if self._task.descriptor is None:
            limit = min(limit, 0.5)
        return min(limit, max(self._due_at() - since_boot(), self._ttl / 60))

    def _due_at(self) -> float:
        """Give the moment of the next renewal."""
        beat_at: float = self._page[BEAT_AT]
        not_before: float = self._asked_at + self._ttl / 6
        if self._renewed_at > beat_at:
            return max(self._renewed_at + self._interval, not_before)
        return max(beat_at + self._late, not_before)

    def _keep_lease(self) -> None:
        if self._ledger.busy or self._gone:
            return
        now = since_boot()
        if now < self._due_at():
            if self._page[BEAT_AT] > self._renewed_at:
                self._ledger.close()
                self._told = False
            return
        self._asked_at = now

        def answer(held: bool) -> None:
            if held:
                self._renewed_at = now
                self._tell_renewal()
            else:
                self._gone = True
                if self._page[STATE] == AT_WORK:
                    self._superseded_at = since_boot()

        self._ledger.ask("renew", {"ttl": self._ttl}, answer)

    def _tell_renewal(self) -> None:
        if not self._told:
            self._told = True
            silent = since_boot() - self._page[BEAT_AT]
            why = "this task's threads do not get to run, or can't reach the ledger"
            say(f"no heartbeat for {silent:.0f} s: {why}; its guard keeps the lease")

    def _end_superseded(self) -> None:
        """Freeze a process that lost its lease and can't see it; its supervisor ends it, at last we do."""
        if self._superseded_at is None or not self._lost():
            return
        if not self._freeze(self._lost):
            return
        say("a later attempt of this task took over, and this process can't end itself: it is stopped, and ended")
        end_left_over(self._plan["token"], self._task.pid, leads=False)
        if not self._task.becomes("", self._plan["verdict"]):
            self._task.send(signal.SIGKILL)

    def _lost(self) -> bool:
        assert self._superseded_at is not None
        until = self._page[IN_HAND_UNTIL]
        if self._page[STATE] != AT_WORK:
            return False
        return until == NOTHING or since_boot() > max(
            self._superseded_at + self._plan["patience"], until + self._plan["record"]
        )

    def _end_hanging(self) -> None:
        """End a call that is over its deadline in a process whose threads do not run, with all stacks in its log."""
        if not self._hangs():
            self._hangs_since = None
            return
        if self._hangs_since is None:
            self._hangs_since = time.monotonic()
        if time.monotonic() - self._hangs_since < self._plan["hang"] / 2 or not self._freeze(self._hangs):
            return
        over = time.monotonic() - self._page[CALL_DUE]
        say(f"a call is {over:.0f} s over its timeout and holds the interpreter: its guard ends this process")
        if (number := self._plan["dump"]) is not None:
            # Taken by a handler in C as soon as the process goes on: it writes all stacks, and dies of the signal.
            self._task.send(number)
        else:
            self._task.send(signal.SIGKILL)
        self._task.send(signal.SIGCONT)
        if not self._task.becomes("", DUMP_SECONDS):
            self._task.send(signal.SIGKILL)

    def _hangs(self) -> bool:
        due, recorded = self._page[CALL_DUE], self._page[IN_HAND_UNTIL] + self._plan["record"]
        overdue = 0.0 < due < time.monotonic() - self._plan["hang"] / 2
        return overdue and self._page[STATE] == AT_WORK and since_boot() > recorded

    def _freeze(self, still: Callable[[], bool]) -> bool:
        """
        Stop the process and look once more: between a call and its record nothing is ended.

        :param still: the reason, on what the stopped process left in the page.
        :return: whether it stands; else the process goes on.
        """
        self._task.send(signal.SIGSTOP)
        if self._task.becomes("Tt", DUMP_SECONDS) and still():
            return True
        self._task.send(signal.SIGCONT)
        return False

    def _after_death(self) -> None:
        died_at = time.monotonic()
        signal.alarm(int(REST_SECONDS))
        ended = end_left_over(self._plan["token"], self._task.pid, leads=self._plan["leads"])
        if ended:
            names = ", ".join(f"{pid} ({name})" for pid, name in sorted(ended.items()))
            say(f"this task's process is dead; its guard ended what it left: {names}")
        # The supervisor reads the log until nobody can write to it.
        close_log()
        if self._gone:
            return
        # Many tasks of one machine may die at once, and are not to reach for the ledger at once.
        settle: float = self._plan["settle"]
        time.sleep(settle / 3 * (self._task.pid % 100 / 100))
        self._ledger.wait(settle)
        left = max(0.0, settle - (time.monotonic() - died_at))
        # The last heartbeat may be older than the step that killed it.
        self._ledger.ask("lapse", {"left": left, "step": step_of(self._page.cast("B"))}, lambda _found: None)
        self._ledger.wait(REST_SECONDS)


def say(line: str) -> None:
    """
    Write a line of the task log, where there is still one.

    :param line: without an end.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"aiflow: {line}\n".encode())


def close_log() -> None:
    """Let go of the task's log."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def read_plan(word: int) -> dict[str, Any]:
    """
    Read what the task process wrote: one line of JSON.

    :param word: the socket's descriptor.
    """
    text = b""
    while not text.endswith(b"\n"):
        piece = os.read(word, 65_536)
        if not piece:
            raise EOFError("the plan ended in the middle")
        text += piece
    plan: dict[str, Any] = json.loads(text)
    return plan


def main() -> NoReturn:
    """Be the guard."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Meant for the task, which has work to bring to its record; this process ends with that one.
        signal.signal(number, signal.SIG_IGN)
    word = 0  # standard input, a socket
    try:
        plan = read_plan(word)
        page = mmap.mmap(plan["page"], PAGE_BYTES)
        os.close(plan["page"])
        Guard(plan, memoryview(page).cast("d"), word).run()
    except Exception as error:  # the task must not suffer
        say(f"the guard of this task has failed, and the task goes on without it: {type(error).__name__}: {error}")
    finally:
        os._exit(0)  # also out of a thread that asks the ledger
