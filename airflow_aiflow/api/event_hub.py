"""
One reader of the ledger for all the streams of a server: a stream costs a queue, not a connection.

A stream is put down first and then brought up to date from its own cursor, so that nothing falls between the two; what
it gets twice is told by its cursor and dropped. A client that reads too slowly loses its queue, not its events: it is
brought up to date again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi.concurrency import run_in_threadpool

from airflow_aiflow.durable.event_cursor import Cursor, Event, Events

log = logging.getLogger(__name__)

#: Seconds between two looks for news.
LOOK_SECONDS = 0.25

#: Events of one look; more wait for the next one, which follows at once.
PAGE = 1_000

#: Events that wait for one client.
QUEUE = 1_000

#: Seconds until the next look after one that failed.
AFTER_FAULT = 2.0

#: Seconds between two looks at what Airflow says of the runs that somebody follows.
STATE_SECONDS = 1.0

Run = tuple[str, str]
News = tuple[Run, Event]


@dataclass(eq=False, slots=True)
class Stream:
    """
    Be one client's stream.

    :param runs: what it follows.
    :param cursor: how far it is.
    """

    runs: tuple[Run, ...]
    cursor: Cursor
    queue: asyncio.Queue[News] = field(default_factory=lambda: asyncio.Queue(QUEUE))
    late: bool = True

    def offer(self, run: Run, event: Event) -> None:
        """
        Give it an event, unless it is brought up to date anyway.

        :param run: one of its runs.
        :param event: of that run.
        """
        if self.late:
            return
        try:
            self.queue.put_nowait((run, event))
        except asyncio.QueueFull:
            self.late = True


class EventHub:
    """
    Feed streams.

    :param events: gives the ledger's; asked at the first stream.
    :param look: gives Airflow's word on each of many runs, in one query.
    :param wait: waits some seconds.
    """

    def __init__(
        self,
        events: Callable[[], Events],
        look: Callable[[Sequence[Run]], Mapping[Run, str]],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._events = events
        self._look_at = look
        self._wait = wait
        self._words: dict[Run, str] = {}
        self._streams: dict[Run, set[Stream]] = {}
        self._cursors: dict[Run, Cursor] = {}
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def stream(self, runs: Sequence[Run], cursor: Cursor) -> AsyncIterator[Stream]:
        """
        Follow runs.

        :param runs: (DAG id, run id).
        :param cursor: how far the client is.
        """
        one = Stream(tuple(runs), cursor)
        for run in one.runs:
            self._streams.setdefault(run, set()).add(one)
        try:
            if unknown := [run for run in one.runs if run not in self._cursors]:
                # Never from a client's cursor: it may be behind, ahead or made up, and this one feeds everybody. What
                # is before it the stream reads by itself, and later than this.
                for run, end in (await run_in_threadpool(self._events().ends, unknown)).items():
                    self._cursors.setdefault(run, end)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._feed())
            yield one
        finally:
            for run in one.runs:
                self._streams[run].discard(one)
                if not self._streams[run]:
                    del self._streams[run]
                    self._cursors.pop(run, None)
                    self._words.pop(run, None)

    def words(self, stream: Stream) -> tuple[str | None, ...]:
        """
        Give what Airflow said last of a stream's runs; ``None``: it was not asked yet, or knows none.

        :param stream: any.
        """
        return tuple(self._words.get(run) for run in stream.runs)

    async def news(self, stream: Stream, seconds: float) -> list[News]:
        """
        Give what is new to a stream.

        :param stream: whose cursor goes on behind what is given.
        :param seconds: to wait at most.
        :return: empty: nothing came in that time.
        """
        if stream.late:
            return await self._caught_up(stream)
        found: list[News] = []
        try:
            news: News | None = await asyncio.wait_for(stream.queue.get(), seconds)
        except TimeoutError:
            return found
        while news is not None:
            if stream.cursor.behind(news[1]):
                stream.cursor.pass_(news[1])
                found.append(news)
            news = None if stream.queue.empty() else stream.queue.get_nowait()
        return found

    async def rest(self, stream: Stream) -> list[News]:
        """
        Give all that the ledger has and a stream was not given yet, page by page.

        :param stream: whose cursor goes on behind what is given.
        """
        return await self._caught_up(stream)

    async def _caught_up(self, stream: Stream) -> list[News]:
        stream.late = False  # from here on the queue fills; what is read now comes twice, and is dropped
        while not stream.queue.empty():
            stream.queue.get_nowait()
        found = await run_in_threadpool(self._events().after_by_run, stream.runs, stream.cursor, limit=PAGE)
        if len(found) == PAGE:
            stream.late = True
        for _, event in found:
            stream.cursor.pass_(event)
        return found

    async def _feed(self) -> None:
        pause, since_words = 0.0, STATE_SECONDS
        while self._streams:
            await self._wait(pause)
            since_words += pause
            try:
                full = await self._look()
                if since_words >= STATE_SECONDS:
                    since_words = 0.0
                    words = await run_in_threadpool(self._look_at, list(self._streams))
                    # Whose last client has gone meanwhile is forgotten already.
                    self._words |= {run: word for run, word in words.items() if run in self._streams}
            except Exception as error:  # the ledger may be away: streams wait, and none is lost
                log.warning("aiflow: events can't be read now: %s", error)
                pause = AFTER_FAULT
                continue
            pause = 0.0 if full else LOOK_SECONDS

    async def _look(self) -> bool:
        """Read the news of all runs that somebody follows, in one statement; say whether there may be more."""
        runs = list(self._cursors)
        if not runs:
            return False
        places = {place: seq for run in runs for place, seq in self._cursors[run].places.items()}
        found = await run_in_threadpool(self._events().after_by_run, runs, Cursor(places), limit=PAGE)
        for run, event in found:
            cursor = self._cursors.get(run)
            if cursor is None:
                continue  # its last client has gone meanwhile
            if cursor.behind(event):
                cursor.pass_(event)
            for stream in tuple(self._streams.get(run, ())):
                stream.offer(run, event)
        return len(found) == PAGE
