"""
Follow submissions to their end: what happens in them, and how they stand. Streams and sockets say it in their own ways.

How one stands is looked at where something else is said of its run, in the ledger or by Airflow: never for each event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

from airflow_aiflow.api.event_hub import EventHub, News, Stream
from airflow_aiflow.api.rights import may
from airflow_aiflow.durable.event_cursor import DELTA, Cursor, CursorShelf, Event, shortened, whole
from airflow_aiflow.durable.submission import Submission, SubmissionState
from airflow_aiflow.durable.submitting import SubmissionService

#: Seconds of silence after which a client is told that nothing was lost: proxies close silent connections.
QUIET_SECONDS = 15.0

#: Seconds for which one who asks for what there is waits for how it stands.
WORD_SECONDS = 5.0

#: Seconds after which a client has to come again, which it does by itself: a right that was taken away ends by then.
LONGEST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class EventTold:
    """
    Tell an event.

    :param cursor: to go on behind it.
    """

    submission_id: UUID
    event: Event
    cursor: str

    @property
    def plain(self) -> dict[str, Any]:
        """As clients get it."""
        return {
            "submission_id": str(self.submission_id),
            "kind": self.event.kind,
            "task_id": self.event.task_id,
            "map_index": self.event.map_index,
            "attempt": self.event.attempt,
            "at": self.event.at.isoformat(),
            "data": self.event.data,
        }


@dataclass(frozen=True, slots=True)
class StateTold:
    """Tell how a submission stands now; it has no cursor: who comes back is told anew."""

    submission_id: UUID
    state: SubmissionState

    @property
    def plain(self) -> dict[str, Any]:
        """As clients get it."""
        return {"submission_id": str(self.submission_id), "state": self.state.value}


@dataclass(frozen=True, slots=True)
class Quiet:
    """Tell that nothing has happened."""


Told = EventTold | StateTold | Quiet


class Following:
    """
    Follow submissions.

    :param service: gives what knows them.
    :param hub: feeds the streams.
    :param shelf: gives what long cursors rest on; ``None``: they are written whole.
    """

    def __init__(
        self,
        service: Callable[[], SubmissionService],
        hub: EventHub,
        shelf: Callable[[], CursorShelf] | None = None,
    ) -> None:
        self._service = service
        self._hub = hub
        self._shelf = shelf

    async def cursor(self, text: str) -> Cursor:
        """
        Read a client's cursor.

        :param text: an event's id as it came; empty: from the beginning.
        :raises ValueError: if it is none, or too old.
        """
        read, shelf = Cursor.read(text), self._shelf
        if read.whole:
            return read
        if shelf is None:
            raise ValueError("the cursor is too old: begin without one")
        return await self._hub.ask(lambda: whole(read, shelf()))

    async def found(self, ids: Sequence[UUID], user: BaseUser) -> list[Submission]:
        """
        Find what a user may follow.

        :param ids: which ones.
        :param user: who asks.
        :raises LookupError: if one is not there, or not the user's to see: nobody learns which.
        """
        return await self._hub.ask(self._known, ids, user)

    def _known(self, ids: Sequence[UUID], user: BaseUser) -> list[Submission]:
        known: list[Submission] = []
        allowed: dict[str, bool] = {}
        for each in ids:
            one = self._service().get(each)
            if one is not None and one.pipeline not in allowed:
                allowed[one.pipeline] = may(user, "GET", one.pipeline)
            if one is None or not allowed[one.pipeline]:
                raise LookupError(each)
            known.append(one)
        return known

    def _mute(self, submissions: Sequence[Submission], user: BaseUser) -> frozenset[str]:
        """Find the pipelines of which the user may not see what tasks gave."""
        names = {one.pipeline for one in submissions}
        return frozenset(name for name in names if not may(user, "GET", name, DagAccessEntity.XCOM))

    async def told(
        self,
        submissions: Sequence[Submission],
        cursor: Cursor,
        user: BaseUser,
        *,
        wait: float | None = None,
        states: bool = False,
    ) -> AsyncIterator[Told]:
        """
        Tell all there is behind a cursor, and then what comes, until all of them have ended.

        :param submissions: which ones.
        :param cursor: how far the client is.
        :param user: who asks: a model's answer is told, while it is written, to who may see results.
        :param wait: seconds after which to end, or as soon as there was something to tell; ``None``: not before.
        :param states: tell how they stand, and no event.
        """
        mute = await self._hub.ask(self._mute, submissions, user)
        way, clock = _Way(submissions, cursor.copy(), mute), asyncio.get_running_loop().time
        spoke, until, last = clock(), None if wait is None else clock() + wait, clock() + LONGEST_SECONDS
        async with self._hub.stream(list(way.by_run), Cursor(dict(cursor.places))) as stream:
            while True:
                left = max(0.0, spoke + QUIET_SECONDS - clock()) if states else QUIET_SECONDS
                if until is not None:
                    # How it stands is told in any case.
                    left = max(0.0, min(left, until + (0.0 if way.states else WORD_SECONDS) - clock()))
                news = await self._hub.news(stream, left)
                news = [] if states else news
                async for each in self._events(way, stream, news):
                    yield each
                known, moved = bool(way.states), await self._moved(way, stream)
                # What was written before the end is told before it.
                while way.over and not states and (rest := await self._hub.rest(stream)):
                    async for each in self._events(way, stream, rest):
                        yield each
                for state in moved:
                    yield state
                if way.over:
                    return
                quiet = not news and not moved and (not states or clock() >= spoke + QUIET_SECONDS)
                if quiet:
                    yield Quiet()
                spoke = clock() if moved or quiet else spoke
                enough = news or (known and moved) or (until is not None and clock() >= until)
                if until is not None and not stream.late and enough and (way.states or left == 0.0):
                    return
                if clock() >= last:
                    return

    async def _events(self, way: _Way, stream: Stream, news: Sequence[News]) -> AsyncIterator[EventTold]:
        shelf = self._shelf
        for run, event in news:
            way.cursor.pass_(event)
            way.seen.add(event.execution_pk)
            if event.kind == DELTA and run[0] in way.mute:
                continue
            if shelf is not None and way.cursor.long:
                way.cursor.only(way.seen | self._hub.executions(stream))
                await self._hub.ask(lambda shelf: shortened(way.cursor, shelf()), shelf)
            yield EventTold(way.by_run[run], event, str(way.cursor))

    async def _moved(self, way: _Way, stream: Stream) -> list[StateTold]:
        words = self._hub.words(stream)
        if None in words or words == way.words:
            return []
        way.words = words

        def look() -> dict[UUID, SubmissionState]:
            found = [self._service().standing(one) for one in way.submissions]
            return {each.submission.submission_id: each.submission.state for each in found}

        before, way.states = way.states, await self._hub.ask(look)
        return [StateTold(one, state) for one, state in way.states.items() if before.get(one) is not state]


class _Way:
    """Know how far one client was told."""

    def __init__(self, submissions: Sequence[Submission], cursor: Cursor, mute: frozenset[str]) -> None:
        self.submissions = submissions
        self.mute = mute
        self.by_run = {(one.pipeline, one.run_id): one.submission_id for one in submissions}
        self.words: tuple[str | None, ...] = ()
        self.states: dict[UUID, SubmissionState] = {}
        self.cursor = cursor
        #: Executions of which something was told.
        self.seen: set[int] = set()

    @property
    def over(self) -> bool:
        return bool(self.states) and all(state.finished for state in self.states.values())
