"""What one client brings along harms no other: the hub's own position follows from the ledger alone."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterable, Iterator

import psycopg
import pytest

from airflow_aiflow.api.event_hub import PAGE, EventHub, Run, Stream
from airflow_aiflow.durable.event_cursor import Cursor, Event
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.payload_cipher import PayloadCipher
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_events import PostgresEvents
from airflow_aiflow.storage.postgres_listen import EventListener
from airflow_aiflow.testing import DurableTask
from tests.integration.api.conftest import World

FIRST, SECOND = ("answer", "first"), ("answer", "second")


@pytest.fixture
def ledger(world: World) -> Iterator[PostgresLedger]:
    made = PostgresLedger.connect(world.dsn)
    yield made
    made.close()


def emit(ledger: PostgresLedger, run: Run) -> None:
    DurableTask(ledger=ledger, clock=SystemClock(), dag_id=run[0], run_id=run[1], task_id="run").run(
        lambda flow: _tick(flow)
    )


def _tick(flow: Flow) -> str:
    flow.emit("tick", number=0)
    return "done"


def write(world: World, pk: int, count: int, *, kind: str = "more") -> None:
    """Write events behind those of an execution's first attempt, as many seconds after each other."""
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(
            "insert into aiflow.event (execution_id, fence, seq, kind, data)"
            " select e.execution_id, 1, e.last + n, %s, e.data"
            " from (select execution_id, max(seq) as last, min(data) as data from aiflow.event"
            " where execution_id = %s group by execution_id) e, generate_series(1, %s) n",
            (kind, pk, count),
        )


def pk_of(world: World, run: Run) -> int:
    [(_, event), *_] = world.events.after_by_run([run], Cursor(), limit=1)
    return event.execution_pk


async def told(hub: EventHub, stream: Stream) -> list[str]:
    """Give the kinds of what comes next; a stream is also woken, with nothing, once its run's state is known."""
    async with asyncio.timeout(30):
        while not (found := await hub.news(stream, 5)):
            pass
    return [event.kind for _, event in found]


def test_a_made_up_cursor_keeps_no_other_client_from_its_events(world: World, ledger: PostgresLedger) -> None:
    emit(ledger, FIRST)
    pk = pk_of(world, FIRST)
    hub = EventHub(lambda: world.events, world.runs.words)

    async def follow() -> list[str]:
        async with hub.stream([FIRST], Cursor({(pk, 1): 10**9})), hub.stream([FIRST], Cursor()) as honest:
            await hub.news(honest, 1)
            await asyncio.to_thread(write, world, pk, 3, kind="late")
            return await told(hub, honest)

    assert asyncio.run(follow()) == ["late"] * 3


def test_a_cursor_over_many_runs_does_not_set_the_hub_back(
    world: World, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit(ledger, FIRST)
    emit(ledger, SECOND)
    pk = pk_of(world, FIRST)
    write(world, pk, PAGE + 10)
    read: list[int] = []
    after_by_run = world.events.after_by_run

    def counted(runs: Iterable[Run], cursor: Cursor, *, limit: int) -> list[tuple[Run, Event]]:
        found = after_by_run(runs, cursor, limit=limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(world.events, "after_by_run", counted)
    hub = EventHub(lambda: world.events, world.runs.words)

    async def follow() -> list[str]:
        async with hub.stream([FIRST, SECOND], Cursor({(pk, 1): 0})) as stream:
            while await hub.news(stream, 1):
                pass
            read.clear()
            await asyncio.to_thread(write, world, pk, 2, kind="late")
            return await told(hub, stream)

    assert asyncio.run(follow()) == ["late"] * 2
    assert sum(read) == 2  # and not all that came since the client was cut off, at every look


def test_a_clock_set_back_between_two_events_loses_none(world: World, ledger: PostgresLedger) -> None:
    emit(ledger, FIRST)
    pk = pk_of(world, FIRST)
    write(world, pk, 6)
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("update aiflow.event set at = at - interval '1 minute' where seq >= 4")
    cursor, seen = Cursor(), list[int]()
    while page := world.events.after_by_run([FIRST], cursor, limit=2):
        for _, event in page:
            cursor.pass_(event)
            seen.append(event.seq)
    assert seen == sorted(set(seen))
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        assert [(len(seen),)] == connection.execute("select count(*) from aiflow.event").fetchall()


def test_an_event_that_can_not_be_opened_keeps_no_other_from_its_readers(world: World, ledger: PostgresLedger) -> None:
    emit(ledger, FIRST)
    pk = pk_of(world, FIRST)
    write(world, pk, 3)
    whole = [event for _, event in world.events.after_by_run([FIRST], Cursor(), limit=PAGE)]
    locked, torn = whole[-3], whole[-2]
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        for event, data in (
            (locked, PayloadCipher((base64.urlsafe_b64encode(b"k" * 32),)).lock(b'{"v":"hidden"}')),
            (torn, b"\xff{"),
        ):
            connection.execute(
                "update aiflow.event set data = %s where execution_id = %s and fence = 1 and seq = %s",
                (data, pk, event.seq),
            )
    told = [event for _, event in world.events.after_by_run([FIRST], Cursor(), limit=PAGE)]
    assert [event.seq for event in told] == [event.seq for event in whole]
    assert [list(event.data) for event in told if event in (told[-3], told[-2])] == [["unreadable"]] * 2
    assert "payload_keys" in told[-3].data["unreadable"]
    assert [e.data for e in (*told[:-3], told[-1])] == [e.data for e in (*whole[:-3], whole[-1])]


def test_a_stream_goes_on_where_news_can_not_be_heard(world: World, ledger: PostgresLedger) -> None:
    emit(ledger, FIRST)
    pk = pk_of(world, FIRST)

    def none() -> EventListener:
        raise ConnectionError("the ledger's address can't be read now")

    hub = EventHub(lambda: world.events, world.runs.words, none)

    async def follow() -> list[str]:
        async with hub.stream([FIRST], Cursor()) as stream, asyncio.timeout(30):
            await hub.news(stream, 1)
            await asyncio.to_thread(write, world, pk, 2, kind="late")
            kinds: list[str] = []
            while len(kinds) < 2:
                kinds += [event.kind for _, event in await hub.news(stream, 1)]
            return kinds

    assert asyncio.run(follow()) == ["late"] * 2


def test_what_opens_the_ledger_may_block(world: World, ledger: PostgresLedger) -> None:
    emit(ledger, FIRST)
    by: set[int] = set()

    def opened() -> PostgresEvents:
        by.add(threading.get_ident())
        return world.events

    hub = EventHub(opened, world.runs.words)

    async def follow() -> int:
        async with hub.stream([FIRST], Cursor()) as stream, asyncio.timeout(30):
            return len(await hub.news(stream, 1))

    assert asyncio.run(follow()) > 0
    assert by
    assert threading.get_ident() not in by, "nobody else is served meanwhile"
