"""The database's word that a run has news: it makes a look come sooner, and nothing is lost without it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from airflow_aiflow.api import event_hub
from airflow_aiflow.api.event_hub import EventHub, Run
from airflow_aiflow.durable.event_cursor import Cursor, is_handed_in, run_mark
from airflow_aiflow.durable.submission import run_id_of
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_listen import EventListener
from airflow_aiflow.testing import DurableTask
from tests.integration.api.conftest import World
from tests.integration.api.test_events import emits, until
from tests.pooler import PGBOUNCER, pooled

PATIENCE = 30.0

RUN: Run = ("answer", "aiflow__one")


@pytest.fixture
def ledger(world: World) -> Iterator[PostgresLedger]:
    made = PostgresLedger.connect(world.dsn, tells=True)
    yield made
    made.close()


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody look by itself: what is seen was told."""
    monkeypatch.setattr(event_hub, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(event_hub, "TOLD_LOOK_SECONDS", 3600.0)


class Heard:
    """Keep what a listener hears."""

    def __init__(self, dsn: str) -> None:
        self.marks: list[str] = []
        self.told: list[bool] = []
        self.listener = EventListener(dsn)

    def heard(self, marks: Sequence[str]) -> None:
        self.marks.extend(marks)

    def __enter__(self) -> Heard:
        self.listener.start(self.heard, self.told.append)
        return self

    def __exit__(self, *error: object) -> None:
        self.listener.stop()
        self.listener.join(PATIENCE)


def write(ledger: PostgresLedger, run: Run = RUN, count: int = 1, task_id: str = "run") -> None:
    DurableTask(ledger=ledger, clock=SystemClock(), dag_id=run[0], run_id=run[1], task_id=task_id).run(emits(count))


def followed(world: World, hub: EventHub, act: Callable[[], None], wanted: int, run: Run = RUN) -> list[str]:
    """Follow a run while something is done, until so many ticks were seen."""

    async def follow() -> list[str]:
        kinds: list[str] = []
        async with hub.stream([run], Cursor()) as stream:
            await hub.news(stream, 0)
            await asyncio.to_thread(until, lambda: hub.hears)
            doing = asyncio.create_task(asyncio.to_thread(act))
            async with asyncio.timeout(PATIENCE):
                while kinds.count("tick") < wanted:
                    kinds += [event.kind for _, event in await hub.news(stream, 1)]
            await doing
        return kinds

    return asyncio.run(follow())


def test_runs_that_were_handed_in_are_known_by_their_ids() -> None:
    assert is_handed_in(run_id_of(b"x" * 32, 1))
    assert not is_handed_in("manual__2026-11-30")


@pytest.mark.usefixtures("no_looks")
def test_events_are_seen_though_nobody_looks(world: World, ledger: PostgresLedger) -> None:
    assert followed(world, world.hub, lambda: write(ledger, count=100), 100).count("tick") == 100


@pytest.mark.usefixtures("no_looks")
def test_what_came_while_the_listener_was_away_is_seen_once_it_is_back(world: World) -> None:
    silent = PostgresLedger.connect(world.dsn)  # nobody tells of what is written by it

    def cut() -> None:
        write(silent)
        with psycopg.connect(world.dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and query ilike '%aiflow_event%' and pid <> pg_backend_pid()"
            )

    try:
        assert followed(world, world.hub, cut, 1).count("tick") == 1
    finally:
        silent.close()


def test_a_hub_without_a_listener_looks_by_itself(world: World, ledger: PostgresLedger) -> None:
    hub = EventHub(lambda: world.events, world.runs.words)

    async def follow() -> int:
        async with hub.stream([RUN], Cursor()) as stream, asyncio.timeout(PATIENCE):
            await hub.news(stream, 0)
            await asyncio.to_thread(write, ledger)
            while not await hub.news(stream, 1):
                pass
        return 1

    assert asyncio.run(follow()) == 1


def test_only_runs_that_were_handed_in_are_told_of(world: World, ledger: PostgresLedger) -> None:
    with Heard(world.dsn) as ears:
        until(lambda: ears.told)
        write(ledger, ("answer", "manual__x"))
        write(ledger)
        until(lambda: ears.marks)
        ledger.close()  # the last word is out after it
    assert set(ears.marks) == {run_mark(*RUN)}


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")
def test_behind_a_pooler_nobody_is_believed_to_listen(world: World, ledger: PostgresLedger, tmp_path: Path) -> None:
    with pooled(world.dsn, tmp_path) as dsn, Heard(dsn) as ears:
        until(lambda: ears.told)
        write(ledger)
        assert ears.told == [False]
        assert ears.marks == []


def test_many_streams_share_one_listener_and_few_connections(world: World, ledger: PostgresLedger) -> None:
    runs = [("answer", f"aiflow__{number}") for number in range(60)]

    async def follow() -> int:
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
            streams = [await stack.enter_async_context(world.hub.stream([run], Cursor())) for run in runs]
            await asyncio.gather(*(world.hub.news(stream, 0) for stream in streams))
            await asyncio.to_thread(until, lambda: world.hub.hears)
            await asyncio.to_thread(write_all)
            for stream in streams:
                while not any(event.kind == "tick" for _, event in await world.hub.news(stream, 1)):
                    pass
            return await asyncio.to_thread(listeners)

    def listeners() -> int:
        with psycopg.connect(world.dsn, autocommit=True) as connection:
            [(count,)] = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and query ilike '%aiflow_event%' and query not ilike '%aiflow.execution%' and pid <> pg_backend_pid()"
            ).fetchall()
            return int(count)

    def write_all() -> None:
        for run in runs:
            write(ledger, run)

    before = threading.active_count()
    assert asyncio.run(follow()) == 1
    assert threading.active_count() <= before + 2 + event_hub.READERS  # listener and bell may end a little later


def test_a_client_that_does_not_read_loses_its_queue_and_no_event(world: World, ledger: PostgresLedger) -> None:
    count = 3 * event_hub.QUEUE

    async def follow() -> list[int]:
        seen: list[int] = []
        async with world.hub.stream([RUN], Cursor()) as stream, asyncio.timeout(PATIENCE):
            await world.hub.news(stream, 0)
            await asyncio.to_thread(write, ledger, RUN, count)
            await asyncio.to_thread(until, lambda: stream.late)  # all of it came while nobody took anything
            while len(seen) < count:
                seen += [e.data["number"] for _, e in await world.hub.news(stream, 1) if e.kind == "tick"]
        return seen

    assert asyncio.run(follow()) == list(range(count))
