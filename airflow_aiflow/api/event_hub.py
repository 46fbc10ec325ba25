"""
One reader of the ledger for all the streams of a server: a stream costs a queue, not a connection and not a thread.

A stream is put down first and then brought up to date from its own cursor, so that nothing falls between the two; what
it gets twice is told by its cursor and dropped. A client that reads too slowly loses its queue, not its events: it is
brought up to date again. The database's word that a run has news makes a look at that run come at once; without one
the hub looks by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import anyio
import anyio.to_thread

from airflow_aiflow.durable.event_cursor import Cursor, Event, Events, run_mark

log = logging.getLogger(__name__)

#: Seconds between two looks for news, where nobody tells of them.
LOOK_SECONDS = 0.25

#: Seconds between two looks where the database tells: for a word that was lost on its way.
TOLD_LOOK_SECONDS = 5.0

#: Events of one look; more wait for the next one, which follows at once.
PAGE = 1_000

#: Events that wait for one client: ten thousand clients that stand still must not fill a server.
QUEUE = 200

#: Seconds until the next look after one that failed.
AFTER_FAULT = 2.0

#: Seconds between two looks at what is said of the runs that somebody follows.
STATE_SECONDS = 1.0

#: Part of the time that looks at everything may take: with thousands of runs they come more seldom.
SHARE = 0.1

#: Reads at once for all streams: the other threads of the server are for its other requests.
READERS = 4

Run = tuple[str, str]
News = tuple[Run, Event]

P = ParamSpec("P")
R = TypeVar("R")


class Listener(Protocol):
    """Hear that runs have news: ``storage.postgres_listen`` does."""

    def start(self, heard: Callable[[Sequence[str]], None], hears: Callable[[bool], None]) -> None:
        """Begin; both are called from another thread."""

    def stop(self) -> None:
        """End."""


@dataclass(eq=False, slots=True)
class Stream:
    """
    Be one client's stream.

    :param runs: what it follows.
    :param cursor: how far it is.
    """

    runs: tuple[Run, ...]
    cursor: Cursor
    queue: deque[News] = field(default_factory=deque)
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    late: bool = True

    def offer(self, run: Run, event: Event) -> None:
        """
        Give it an event, unless it is brought up to date anyway.

        :param run: one of its runs.
        :param event: of that run.
        """
        if self.late:
            return
        if len(self.queue) < QUEUE:
            self.queue.append((run, event))
        else:
            self.queue.clear()
            self.late = True
        self.awake.set()


class EventHub:
    """
    Feed streams.

    :param events: gives the ledger's; asked at the first stream.
    :param look: gives Airflow's word on each of many runs, in one query.
    :param listener: makes what hears of news; ``None``: nobody tells.
    """

    def __init__(
        self,
        events: Callable[[], Events],
        look: Callable[[Sequence[Run]], Mapping[Run, str]],
        listener: Callable[[], Listener] | None = None,
    ) -> None:
        self._events = events
        self._look_at = look
        self._listener = listener
        self._words: dict[Run, str] = {}
        self._streams: dict[Run, set[Stream]] = {}
        self._cursors: dict[Run, Cursor] = {}
        self._marks: dict[str, Run] = {}
        self._rung: set[Run] = set()
        self._new: set[Run] = set()
        self._told = False
        self._missed = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()
        self._readers: anyio.CapacityLimiter | None = None

    async def ask(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """
        Call what blocks, in one of the few threads that all streams share; what gives the ledger may block, too.

        :param call: what to call.
        """
        self._be_here()
        return await anyio.to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._readers)

    @asynccontextmanager
    async def stream(self, runs: Sequence[Run], cursor: Cursor) -> AsyncIterator[Stream]:
        """
        Follow runs.

        :param runs: (DAG id, run id).
        :param cursor: how far the client is.
        """
        self._be_here()
        one = Stream(tuple(runs), cursor)
        for run in one.runs:
            self._streams.setdefault(run, set()).add(one)
            self._marks[run_mark(*run)] = run
            if run not in self._words:
                self._new.add(run)
        self._awake.set()
        try:
            if unknown := [run for run in one.runs if run not in self._cursors]:
                # Never from a client's cursor: it may be behind, ahead or made up, and this one feeds everybody. What
                # is before it the stream reads by itself, and later than this.
                for run, end in (await self.ask(lambda: self._events().ends(unknown))).items():
                    self._cursors.setdefault(run, end)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._feed())
            yield one
        finally:
            for run in one.runs:
                self._streams[run].discard(one)
                if not self._streams[run]:
                    del self._streams[run], self._marks[run_mark(*run)]
                    self._cursors.pop(run, None)
                    self._words.pop(run, None)
                    self._rung.discard(run)
                    self._new.discard(run)

    @property
    def followed(self) -> int:
        """How many runs somebody follows."""
        return len(self._streams)

    @property
    def hears(self) -> bool:
        """Whether the database tells of news now."""
        return self._told

    def words(self, stream: Stream) -> tuple[str | None, ...]:
        """
        Give what was said last of a stream's runs; it means nothing by itself. ``None``: not asked yet, or not there.

        :param stream: any.
        """
        return tuple(self._words.get(run) for run in stream.runs)

    def executions(self, stream: Stream) -> set[int]:
        """
        Give the rows of the executions that a stream's runs are known to have.

        :param stream: any.
        """
        return {pk for run in stream.runs if run in self._cursors for pk, _ in self._cursors[run].places}

    async def news(self, stream: Stream, seconds: float) -> list[News]:
        """
        Give what is new to a stream.

        :param stream: whose cursor goes on behind what is given.
        :param seconds: to wait at most.
        :return: empty: nothing came in that time, or something else is said of its runs.
        """
        if not stream.late and not stream.queue:
            stream.awake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await stream.awake.wait()
            except TimeoutError:
                return []
        if stream.late:
            return await self._caught_up(stream)
        found: list[News] = []
        while stream.queue:
            run, event = stream.queue.popleft()
            if stream.cursor.behind(event):
                stream.cursor.pass_(event)
                found.append((run, event))
        return found

    async def rest(self, stream: Stream) -> list[News]:
        """
        Give all that the ledger has and a stream was not given yet, page by page.

        :param stream: whose cursor goes on behind what is given.
        """
        return await self._caught_up(stream)

    async def _caught_up(self, stream: Stream) -> list[News]:
        stream.late = False  # from here on the queue fills; what is read now comes twice, and is dropped
        stream.queue.clear()
        found = await self.ask(lambda: self._events().after_by_run(stream.runs, stream.cursor, limit=PAGE))
        if len(found) == PAGE:
            stream.late = True
        for _, event in found:
            stream.cursor.pass_(event)
        return found

    def _be_here(self) -> None:
        """Belong to the loop that runs: what an ended one left is of no use here."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._task = loop, None
            self._awake, self._readers = asyncio.Event(), anyio.CapacityLimiter(READERS)

    async def _feed(self) -> None:
        listener = None if self._listener is None else await self._heard_by(self._listener)
        loop = asyncio.get_running_loop()
        if listener is not None:
            listener.start(
                lambda marks: _soon(loop, self._heard, marks),
                lambda told: _soon(loop, self._hears, told),
            )
        try:
            await self._feed_all(loop.time)
        finally:
            self._told = False
            if listener is not None:
                listener.stop()

    async def _heard_by(self, listener: Callable[[], Listener]) -> Listener | None:
        try:
            return await self.ask(listener)
        except Exception as error:  # without one the hub looks by itself; no stream may stand still for it
            log.warning("aiflow: news of events can't be heard: %s", error)
            return None

    async def _feed_all(self, clock: Callable[[], float]) -> None:
        look_at = words_at = clock()
        while self._streams:
            self._awake.clear()
            try:
                if self._missed or clock() >= look_at:
                    self._missed, began = False, clock()
                    full = await self._look(list(self._cursors))
                    pause = TOLD_LOOK_SECONDS if self._told else LOOK_SECONDS
                    look_at = clock() if full else clock() + max(pause, (clock() - began) / SHARE)
                elif self._rung:
                    rung, self._rung = self._rung, set()
                    self._missed = await self._look([run for run in rung if run in self._cursors])
                if clock() >= words_at:
                    began = clock()
                    await self._look_at_words(list(self._streams))
                    words_at = clock() + max(STATE_SECONDS, (clock() - began) / SHARE)
                elif self._new:
                    await self._look_at_words(list(self._new))
            except Exception as error:  # the ledger may be away: streams wait, and none is lost
                log.warning("aiflow: events can't be read now: %s", error)
                self._missed = True
                await asyncio.sleep(AFTER_FAULT)
                continue
            if not self._rung and not self._new and not self._missed:
                await self._rest(min(look_at, words_at) - clock())

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass

    def _heard(self, marks: Sequence[str]) -> None:
        self._rung.update(self._marks[mark] for mark in marks if mark in self._marks)
        if self._rung:
            self._awake.set()

    def _hears(self, told: bool) -> None:
        self._told, self._missed = told, True
        self._awake.set()

    async def _look(self, runs: Sequence[Run]) -> bool:
        """Read the news of runs that somebody follows, in one statement; say whether there may be more."""
        if not runs:
            return False
        places = {place: seq for run in runs for place, seq in self._cursors[run].places.items()}
        found = await self.ask(lambda: self._events().after_by_run(runs, Cursor(places), limit=PAGE))
        for run, event in found:
            cursor = self._cursors.get(run)
            if cursor is None:
                continue  # its last client has gone meanwhile
            if cursor.behind(event):
                cursor.pass_(event)
            for stream in tuple(self._streams.get(run, ())):
                stream.offer(run, event)
        return len(found) == PAGE

    async def _look_at_words(self, runs: Sequence[Run]) -> None:
        """Ask Airflow and the ledger, in one query each, and wake the streams of which something else is said now."""
        self._new.difference_update(runs)
        theirs = await self.ask(self._look_at, runs)
        ours = await self.ask(lambda: self._events().words(runs))
        for run in runs:
            word = f"{theirs.get(run)} {ours.get(run)}"
            # Whose last client has gone meanwhile is forgotten already.
            if run in self._streams and self._words.get(run) != word:
                self._words[run] = word
                for stream in self._streams[run]:
                    stream.awake.set()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], value: object) -> None:
    """
    Call in the loop.

    :raises RuntimeError: if it has ended.
    """
    loop.call_soon_threadsafe(call, value)
